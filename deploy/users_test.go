package deploy_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
)

// TestUserFlag: with --user and a certificate, all commands work for who has the password and
// for nobody else, and the console is read-only. SIGHUP ends the connections of a user with
// another password alone. package embedded shows what else such users may do.
func TestUserFlag(t *testing.T) {
	t.Parallel()
	dir, node, ca := t.TempDir(), filepath.Join(secrets, "nats-1"), filepath.Join(secrets, "ca.pem")
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		check(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	app, other := write("app", "first\n"), write("other", "stays\n")
	console := harness.FreeAddr(t)
	server := harness.Serve(t, "--user", "app="+app, "--user", "other="+other,
		"--tls-cert", filepath.Join(node, "cert.pem"), "--tls-key", filepath.Join(node, "key.pem"), "--console", console)
	if !strings.Contains(server.Stderr(), "tls://"+server.Addr) {
		t.Errorf("the ready line: %s", server.Stderr())
	}
	login := []string{"--server", "tls://app@" + server.Addr, "--password-file", app, "--tls-ca", ca}
	run := func(line string) harness.Result {
		t.Helper()
		return harness.Run(t, nil, append(strings.Fields(line), login...)...)
	}
	run("collection create sessions --default-ttl 30m").OK()
	run("document upsert sessions a {}").OK()
	for line, want := range map[string]string{
		"audit --json": `"DocumentCreated":1`, "export": "DocumentCreated", "status --all --json": `"role":"writer"`, "query sessions": `"id":"a"`,
	} {
		if got := run(line).OK(); !strings.Contains(got, want) {
			t.Errorf("%s: %s", line, got)
		}
	}
	for watch := harness.Follow(t, append([]string{"watch", "--since", "1"}, login...)...); !strings.Contains(watch.Line(), "DocumentCreated"); {
	}
	harness.Run(t, nil, "status", "--server", "tls://"+server.Addr, "--tls-ca", ca).Exits(1)
	harness.Run(t, nil, "status", "--server", "tls://app:wrong@"+server.Addr, "--tls-ca", ca).Exits(1)

	request, err := http.NewRequest(http.MethodPost, "http://"+console+"/api/collection.create?collection=x", strings.NewReader("{}"))
	check(t, err)
	request.Header.Set("Lapse-Console", "1")
	request.Header.Set("Origin", "http://"+console)
	reply, err := http.DefaultClient.Do(request)
	check(t, err)
	_ = reply.Body.Close()
	if reply.StatusCode != http.StatusForbidden {
		t.Errorf("the console permits a change without a token: %s", reply.Status)
	}

	dial := func(login string) *client.Client {
		t.Helper()
		c, err := client.Connect("tls://"+login+"@"+server.Addr, client.WithNATSOptions(nats.RootCAs(ca), nats.NoReconnect()))
		check(t, err)
		t.Cleanup(c.Close)
		return c
	}
	first, stays := dial("app:first"), dial("other:stays")
	write("other", "stays\nand\n")
	server.Signal(syscall.SIGHUP)
	eventually(t, "the file is refused", func() bool { return strings.Contains(server.Stderr(), "not reloaded") })
	write("other", "stays\n")
	write("app", "second\n")
	server.Signal(syscall.SIGHUP)
	eventually(t, "the connection with the old password ends", first.Conn().IsClosed)
	eventually(t, "the files are read again", func() bool { return strings.Contains(server.Stderr(), "msg=reloaded") })
	if stays.Conn().Stats().Reconnects > 0 {
		t.Error("the connection of the other user ended")
	}
	if _, err := stays.Status(t.Context()); err != nil {
		t.Errorf("the other user: %v", err)
	}
	run("document get sessions a").OK()
}
