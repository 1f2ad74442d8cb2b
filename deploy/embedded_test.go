package deploy_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
)

// TestEmbeddedExample: with the file of docs/embedded.md, lapse serve has TLS, a password,
// and the account that the file includes. SIGHUP reloads both files. TestConfigAccount shows
// what works in the account.
func TestEmbeddedExample(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/embedded.md")
	check(t, err)
	example := regexp.MustCompile("(?s)```text\n(.*?)```").FindStringSubmatch(string(page))[1]
	dir, node := t.TempDir(), filepath.Join(secrets, "nats-1")
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		check(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	account := harness.Run(t, nil, "config", "account", "APP").OK()
	setPassword := func(password string) { write("app.conf", strings.ReplaceAll(account, "$APP_PASSWORD", password)) }
	setPassword("first")
	file := write("lapse.conf", strings.NewReplacer(`"cert.pem"`, `"`+node+`/cert.pem"`, `"key.pem"`, `"`+node+`/key.pem"`).Replace(example))
	console := harness.FreeAddr(t)
	server := harness.Serve(t, "--nats-config", file, "--console", console)
	if !strings.Contains(server.Stderr(), "tls://"+server.Addr) {
		t.Errorf("the ready line: %s", server.Stderr())
	}
	ca := filepath.Join(secrets, "ca.pem")
	run := func(password string, args ...string) harness.Result {
		return harness.Run(t, nil, append(args, "--server", "tls://app:"+password+"@"+server.Addr, "--tls-ca", ca)...)
	}
	run("first", "collection", "create", "sessions", "--default-ttl", "30m").OK()
	run("first", "document", "upsert", "sessions", "a", `{"n":1}`).OK()
	run("wrong", "status").Exits(1)
	harness.Run(t, nil, "status", "--server", "tls://"+server.Addr, "--tls-ca", ca).Exits(1)

	lapse, err := client.Connect("tls://app:first@"+server.Addr, client.WithNATSOptions(nats.RootCAs(ca), nats.NoReconnect()))
	check(t, err)
	defer lapse.Close()
	// The console is let in without a password.
	reply, err := http.Get("http://" + console + "/api/collection.list")
	check(t, err)
	body, err := io.ReadAll(reply.Body)
	_ = reply.Body.Close()
	if err != nil || reply.StatusCode != http.StatusOK || !strings.Contains(string(body), "sessions") {
		t.Errorf("the console: %s %s, %v", reply.Status, body, err)
	}

	setPassword("second")
	server.Signal(syscall.SIGHUP)
	eventually(t, "the connection with the old password ends", lapse.Conn().IsClosed)
	eventually(t, "the file is reloaded", func() bool { return strings.Contains(server.Stderr(), "reloaded") })
	run("first", "status").Exits(1)
	run("second", "document", "get", "sessions", "a").OK()

	write("lapse.conf", "tls {}\naccounts {}\nlisten: x")
	server.Signal(syscall.SIGHUP)
	eventually(t, "the file is refused", func() bool { return strings.Contains(server.Stderr(), file+":3: listen: give --listen") })
	run("second", "document", "get", "sessions", "a").OK()
	server.Stop()
	harness.Run(t, nil, server.Args()...).Exits(2)
}
