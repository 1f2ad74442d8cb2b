package embedded_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/schema"
)

func TestSecondProcessOnTheSameStore(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, err := embedded.Start(embedded.Options{StoreDir: s.dir, Listen: "127.0.0.1:0", Databases: []schema.DatabaseName{"main"}})
	wantLine(t, err, "another process uses the store directory", s.dir, "--store-dir")
}

// TestStartRefused: a start that cannot be says in one line which flag to change.
func TestStartRefused(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	occupied, file, locked, closed := l.Addr().String(), filepath.Join(t.TempDir(), "file"), t.TempDir(), t.TempDir()
	check(t, os.WriteFile(file, nil, 0o600))
	check(t, os.Mkdir(filepath.Join(locked, "lock"), 0o700)) // no file can be made there
	check(t, os.Chmod(closed, 0o500))
	for _, c := range []struct {
		dir, listen string
		says        []string
	}{
		{t.TempDir(), occupied, []string{occupied, "--listen"}},
		{t.TempDir(), "4222", []string{"4222", "--listen HOST:PORT"}},
		{t.TempDir(), "127.0.0.1", []string{"127.0.0.1", "--listen HOST:PORT"}},
		{t.TempDir(), "127.0.0.1:x", []string{"127.0.0.1:x", "--listen HOST:PORT"}},
		{t.TempDir(), "127.0.0.1:65536", []string{"127.0.0.1:65536", "--listen HOST:PORT"}},
		{filepath.Join(file, "data"), "127.0.0.1:0", []string{file, "--store-dir"}},
		{locked, "127.0.0.1:0", []string{"cannot write to the store directory", locked, "--store-dir"}},
		{closed, "127.0.0.1:0", []string{closed, "--store-dir"}},
	} {
		if c.dir == closed && os.Geteuid() == 0 {
			continue // permissions don't bind this user
		}
		_, err := embedded.Start(embedded.Options{StoreDir: c.dir, Listen: c.listen, Databases: []schema.DatabaseName{"main"}})
		wantLine(t, err, c.says...)
	}
}

func TestRestartKeepsTheData(t *testing.T) {
	t.Parallel()
	for _, sync := range []bool{false, true} {
		var out bytes.Buffer
		o := embedded.Options{
			StoreDir: t.TempDir(), Listen: "127.0.0.1:0", Databases: []schema.DatabaseName{"main"}, SyncAlways: sync,
			Logger: slog.New(slog.NewTextHandler(&out, nil)),
		}
		for n := range uint64(3) {
			s, nc, js := startLog(t, o)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			ack, err := js.Publish(ctx, appendTo("orders.DocumentCreated"), []byte(`{}`))
			if err != nil || ack.Sequence != n+1 {
				t.Fatalf("append after %d starts: %+v, %v", n, ack, err)
			}
			cancel()
			nc.Close()
			s.Shutdown()
		}
		if strings.Contains(strings.ToLower(out.String()), "ready") {
			t.Errorf("the server's own words must not be mistaken for those of serve:\n%s", out.String())
		}
	}
}

func TestURLCanBeDialled(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"127.0.0.1:-1", "0.0.0.0:0", ":0", "localhost:0"} {
		s, err := embedded.Start(embedded.Options{StoreDir: t.TempDir(), Listen: listen, NoAuth: true, Databases: []schema.DatabaseName{"main"}})
		if err != nil {
			t.Fatal(listen, err)
		}
		nc, err := nats.Connect(s.URL(), nats.Timeout(patience))
		if err != nil {
			t.Fatal(listen, s.URL(), err)
		}
		host, _, _ := net.SplitHostPort(s.Address())
		if every := listen[0] == '0' || listen[0] == ':'; every != net.ParseIP(host).IsUnspecified() {
			t.Errorf("%s: the address is %s", listen, s.Address())
		}
		if max := nc.MaxPayload(); max != 4<<20 {
			t.Errorf("max_payload is %d", max)
		}
		nc.Close()
		s.Shutdown()
	}
}

func wantLine(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("started")
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
}

// TestRepliesCrossAccounts: when the server is ready, NATS has subscribed to the replies
// that cross accounts. Else it loses the acknowledgements of concurrent first mutations.
func TestRepliesCrossAccounts(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Options{})
	subjects, err := s.Subscriptions("LAPSE")
	if err != nil || !slices.ContainsFunc(subjects, func(subject string) bool { return strings.HasPrefix(subject, "_R_.") }) {
		t.Errorf("%v, %v", subjects, err)
	}
}
