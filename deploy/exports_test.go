package deploy_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/harness"
)

// withLines returns nats.conf with more lines after some of its lines.
func withLines(t *testing.T, more map[string]string) (path string) {
	t.Helper()
	text, err := os.ReadFile(natsConf)
	check(t, err)
	for line, after := range more {
		if strings.Count(string(text), line+"\n") != 1 {
			t.Fatalf("nats.conf does not have this line once: %s", line)
		}
		text = []byte(strings.Replace(string(text), line+"\n", line+"\n"+after+"\n", 1))
	}
	path = filepath.Join(t.TempDir(), "nats.conf")
	check(t, os.WriteFile(path, text, 0o600))
	return path
}

// TestOpenAccountsEnd: serve ends where the account of the clients imports what is
// published in that of the streams: the secret subject of the log, and answers of its API.
func TestOpenAccountsEnd(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, withLines(t, map[string]string{
		`      { stream: "_INBOX.>", accounts: [CLIENTS] }`:         `      { stream: ">", accounts: [CLIENTS] }`,
		`      { stream: { account: LAPSE, subject: "_INBOX.>" } }`: `      { stream: { account: LAPSE, subject: ">" } }`,
	}), 1)
	serve := append(append([]string{"serve"}, connectionArgs(c.urls)...), "--store-dir", t.TempDir(), "--console", "off")
	if r := harness.Run(t, nil, serve...).Exits(1); !strings.Contains(r.Stderr, "import no stream there but _INBOX.> and _CLIENTS.>") {
		t.Error(r.Stderr)
	}
	for _, line := range c.violations() {
		t.Error(line)
	}
}

// TestWhoSeesExports: a user of an account cannot ask what that exports, whatever its
// permissions are, so lapse cannot check it. A user of the system account can.
func TestWhoSeesExports(t *testing.T) {
	t.Parallel()
	o := &server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true}
	if err := o.ProcessConfigString(`system_account: SYS, accounts {
		LAPSE { users: [{ user: log, password: x }], exports: [{ service: "$JS.API.>" }] }
		APP { users: [{ user: app, password: x }], imports: [{ service: { account: LAPSE, subject: "$JS.API.>" }, to: "LAPSE.API.>" }] }
		SYS { users: [{ user: system, password: x }] }
	}`); err != nil {
		t.Fatal(err)
	}
	url := harness.StartNATS(t, o).ClientURL()
	sees := func(user, subject string) bool {
		t.Helper()
		m, err := harness.Dial(t, url, nats.UserInfo(user, "x")).Request(subject, nil, patience)
		if err != nil && !errors.Is(err, nats.ErrNoResponders) {
			t.Fatalf("%s: %s: %v", user, subject, err)
		}
		if err != nil {
			return false
		}
		return strings.Contains(strings.ReplaceAll(string(m.Data), `\u003e`, ">"), "$JS.API.>")
	}
	for _, subject := range []string{
		"$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.LAPSE.INFO", "$SYS.REQ.ACCOUNT.LAPSE.SUBSZ", "$SYS.REQ.ACCOUNT.PING.INFO", "$SYS.REQ.ACCOUNT.PING.SUBSZ",
		"$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.SERVER.PING.ACCOUNTZ", "$SYS.REQ.SERVER.PING.SUBSZ",
	} {
		if sees("log", subject) {
			t.Errorf("lapse can see its exports: %s", subject)
		}
	}
	if !sees("system", "$SYS.REQ.ACCOUNT.LAPSE.INFO") {
		t.Error("the system account cannot see the exports either, as docs/accounts.md says")
	}
}
