package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/lapsedb/lapse/test/harness"
)

// startNATS starts an external NATS server, in this process.
func startNATS(t *testing.T, change func(*server.Options)) string {
	t.Helper()
	o := harness.NATSOptions(t.TempDir())
	if change != nil {
		change(o)
	}
	return harness.StartNATS(t, o).ClientURL()
}

// admin returns JetStream for the operator of a NATS server.
func admin(t *testing.T, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(harness.Dial(t, url, opts...))
	check(t, err)
	return js
}

// streamsOf returns the streams with their configurations and last sequences, as text.
func streamsOf(t *testing.T, js jetstream.JetStream) string {
	t.Helper()
	var all []string
	list := js.ListStreams(t.Context())
	for info := range list.Info() {
		text, err := json.Marshal(info.Config)
		check(t, err)
		all = append(all, fmt.Sprintf("%s %d", text, info.State.LastSeq))
	}
	check(t, list.Err())
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// refuses runs serve, which must end with code and a line that contains want.
func refuses(t *testing.T, code int, want string, args ...string) {
	t.Helper()
	if !slices.Contains(args, "--store-dir") {
		args = append(args, "--store-dir", t.TempDir())
	}
	r := harness.Run(t, nil, append([]string{"serve"}, args...)...).Exits(code)
	if !strings.Contains(r.Stderr, want) {
		t.Errorf("serve %s: %q, want %q", strings.Join(args, " "), r.Stderr, want)
	}
}

// TestExternalNATSUnreachable: a connection that fails prints the reason.
func TestExternalNATSUnreachable(t *testing.T) {
	t.Parallel()
	nobody := "nats://" + harness.FreeAddr(t)
	refuses(t, 1, "no NATS server answers at "+nobody, "--nats-url", nobody)
	refuses(t, 1, "no NATS server answers at "+strings.Replace(nobody, "//", "//me:xxxxx@", 1), "--nats-url", strings.Replace(nobody, "//", "//me:secret@", 1))
	refuses(t, 1, "unknown context", "--context", "there-is-none")

	locked := startNATS(t, func(o *server.Options) { o.Username, o.Password = "me", "secret" })
	refuses(t, 1, "refuses the connection", "--nats-url", locked)
	refuses(t, 1, "refuses the connection", "--nats-url", strings.Replace(locked, "nats://", "nats://me:wrong@", 1))
	refuses(t, 1, "--creds /nowhere/x.creds", "--nats-url", locked, "--creds", "/nowhere/x.creds")
	refuses(t, 1, "--nkey /nowhere/x.nk", "--nats-url", locked, "--nkey", "/nowhere/x.nk")

	key, err := nkeys.CreateUser()
	check(t, err)
	seed, err := key.Seed()
	check(t, err)
	file := filepath.Join(t.TempDir(), "me.nk")
	check(t, os.WriteFile(file, seed, 0o600))
	refuses(t, 1, "nkeys not supported by the server", "--nats-url", locked, "--nkey", file)
}

// TestExternalNATSMisconfigured: an external NATS that lacks a requirement of lapse, or
// has a conflicting stream, is left unchanged.
func TestExternalNATSMisconfigured(t *testing.T) {
	t.Parallel()
	old := fakeNATS(t, "2.10.22")
	refuses(t, 1, "is v2.10.22: lapse needs v2.12.0 or newer, which accepts atomic batches", "--nats-url", old)

	plain := startNATS(t, func(o *server.Options) { o.JetStream = false })
	refuses(t, 1, "has no JetStream for this account: enable it", "--nats-url", plain)

	single := startNATS(t, nil)
	refuses(t, 1, "is not one of a cluster: start without --replicas", "--nats-url", single, "--replicas", "3")
	js := admin(t, single)
	if streams := streamsOf(t, js); streams != "" {
		t.Errorf("a start that was refused made %s", streams)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EVERYTHING", Subjects: []string{"lapse.>"}}); err != nil {
		t.Fatal(err)
	}
	before := streamsOf(t, js)
	refuses(t, 1, "stream EVERYTHING overlaps lapse.main.", "--nats-url", single)
	if after := streamsOf(t, js); after != before {
		t.Errorf("changed to %s", after)
	}

	// The embedded server of another lapse serve cannot be the external one.
	other := harness.Serve(t)
	r := harness.Run(t, nil, "serve", "--store-dir", t.TempDir(), "--nats-url", other.URL())
	if r.Code != 1 || !strings.Contains(r.Stderr, "lacks rights") {
		t.Errorf("at the server of another lapse it ends with %d: %s", r.Code, r.Stderr)
	}

	small := startNATS(t, func(o *server.Options) { o.MaxPayload = 16 << 10 })
	refuses(t, 1, "max_payload", "--nats-url", small)
}

// fakeNATS announces a NATS server of a version, and answers nothing but PING.
func fakeNATS(t *testing.T, version string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				fmt.Fprintf(conn, "INFO {\"server_id\":\"x\",\"version\":%q,\"proto\":1,\"headers\":true,\"max_payload\":4194304,\"jetstream\":true}\r\n", version)
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					if lines.Text() == "PING" {
						fmt.Fprint(conn, "PONG\r\n")
					}
				}
			}()
		}
	}()
	return "nats://" + l.Addr().String()
}

// TestExternalNATS: with an external NATS lapse works as with its own: the streams exist,
// the store directory has only what can be rebuilt, and a second process on the same
// store directory is refused.
func TestExternalNATS(t *testing.T) {
	t.Parallel()
	url := startNATS(t, nil)
	dir := t.TempDir()
	s := harness.ServeRemote(t, url, dir, t.Output(), "--durability", "os")
	if !strings.Contains(s.Stderr(), "as the writer") {
		t.Errorf("it says %s", s.Stderr())
	}
	s.Run("collection", "create", "c", "--default-ttl", "60").OK()
	s.Run("document", "create", "c", "a", `{"n":1}`).OK()
	refuses(t, 1, "another process uses the store directory", "--nats-url", url, "--store-dir", dir)
	// After a kill it need not wait for its own lease.
	s.Kill()
	s.Restart()
	if !strings.Contains(s.Stderr(), "as the writer") {
		t.Errorf("after a kill it says %s", s.Stderr())
	}
	s.Run("document", "upsert", "c", "a", `{"n":2}`).OK()
	before := s.Run("status").OK()
	s.Stop()
	check(t, os.RemoveAll(filepath.Join(dir, "projection")))
	s.Restart()
	if digest := func(status string) string { _, rest, _ := strings.Cut(status, `"digest":"`); return rest[:20] }; digest(before) != digest(s.Run("status").OK()) {
		t.Error("the projection folded again is another one")
	}
	s.Run("audit").OK()
}
