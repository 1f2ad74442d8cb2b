//go:build unix

package host

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lapsedb/lapse/cosmos"
	"github.com/lapsedb/lapse/test/harness"
)

// lines receives what a logger writes.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	l <- string(text)
	return len(text), nil
}

// TestReloadBeforeServing: a SIGHUP that comes before the gateway serves reads its certificate
// again, and does not end the process.
func TestReloadBeforeServing(t *testing.T) {
	dir := t.TempDir()
	c := Cosmos{Address: cosmos.Address{URL: "https://127.0.0.1:0", CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}}
	cert, key := harness.Certificate(t, 1)
	for file, text := range map[string][]byte{c.CertFile: cert, c.KeyFile: key} {
		check(t, os.WriteFile(file, text, 0o600))
	}
	logged := make(lines, 1)
	s, err := c.Listen(true, slog.New(slog.NewJSONHandler(logged, nil)))
	check(t, err)
	defer s.Close()
	check(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	if line := <-logged; !strings.Contains(line, `"reloaded"`) {
		t.Error(line)
	}
}
