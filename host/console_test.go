package host

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/schema"
)

// TestConsoleOfUsers: a console, which has the rights of a user, permits changes without a
// token only while nobody has to log in.
func TestConsoleOfUsers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app")
	check(t, os.WriteFile(file, []byte("secret"), 0o600))
	users := []User{{Name: "app", File: file}}
	for _, c := range []struct {
		users []User
		token string
		want  bool
	}{{nil, "", true}, {users, "", false}, {users, "0123456789abcdef", true}} {
		o := Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Databases: []schema.DatabaseName{"main"}, Users: c.users, Processor: processor.Options{Logger: slog.New(slog.DiscardHandler)}}
		console := &ConsoleServer{Console: Console{Token: c.token}}
		target := newTarget(o)
		check(t, target.openEmbedded())
		if got := console.mayWrite(target); got != c.want {
			t.Errorf("with %v and token %q: %t", c.users, c.token, got)
		}
		target.close()
	}
}
