package test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
)

// TestConfigAccount: a file of --nats-config includes accounts as `lapse config account`
// prints them. In such an account all works that reads the log, for its databases and
// durables, beside a bucket of its own; in one without the imports of the log, the error
// says how to get them.
func TestConfigAccount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	account := func(args ...string) string {
		t.Helper()
		text := harness.Run(t, nil, append([]string{"config", "account"}, args...)...).OK()
		return regexp.MustCompile(`\$[A-Z0-9_]+_PASSWORD`).ReplaceAllString(text, "secret")
	}
	write("app.conf", account("APP", "--database", "main,other", "--durable", "billing,mail"))
	write("site.conf", account("Site-1"))
	ofLog := regexp.MustCompile(`(?m)^.*(\$JS|_INBOX).*\n`)
	write("streams.conf", ofLog.ReplaceAllString(account("STREAMS"), ""))
	write("bare.conf", regexp.MustCompile(`(?m)^  jetstream.*\n`).ReplaceAllString(ofLog.ReplaceAllString(account("BARE"), ""), ""))
	config := write("lapse.conf", "accounts {\n  include app.conf\n  include site.conf\n  include streams.conf\n  include bare.conf\n}\n")
	s := harness.Serve(t, "--nats-config", config, "--database", "main,other", "--durability", "os")

	login := func(user, api, inboxes string) []string {
		t.Helper()
		settings, err := json.Marshal(map[string]string{"url": s.URL(), "user": user, "password": "secret", "jetstream_api_prefix": api, "inbox_prefix": inboxes})
		check(t, err)
		return []string{"--context", write(user+".json", string(settings))}
	}
	app := login("app", "LAPSE.API", "_INBOX.app")
	commandsInAccount(t, append(app, "--database", "main"))
	commandsInAccount(t, append(app, "--database", "other"))
	if got := harness.Run(t, nil, append([]string{"export"}, login("site-1", "LAPSE.API", "_INBOX.site-1")...)...).OK(); !strings.Contains(got, "DocumentCreated") {
		t.Errorf("export of another account: %s", got)
	}

	c, err := client.Connect("nats://app:secret@"+s.Addr, client.APIPrefix("LAPSE.API"), client.WithNATSOptions(nats.CustomInboxPrefix("_INBOX.app")))
	check(t, err)
	t.Cleanup(c.Close)
	goInAccount(t, c, "billing", "mail")
	if got := harness.Run(t, nil, append([]string{"consumers", "--json"}, app...)...).OK(); !strings.Contains(got, `"name":"billing"`) {
		t.Errorf("consumers: %s", got)
	}

	const missing = `lapse: database "main" is served here, but this account has no log at $JS.API.>: give the prefix`
	for _, refused := range []struct{ user, api, says string }{
		{"streams", "", missing},
		{"bare", "", missing},
		{"bare", "LAPSE.API", "import $JS.API.STREAM.INFO.LAPSE_main, $JS.API.STREAM.MSG.GET.LAPSE_main and $JS.API.CONSUMER.CREATE.LAPSE_main.> there, and"},
	} {
		r := harness.Run(t, nil, append([]string{"watch"}, login(refused.user, refused.api, "_INBOX."+refused.user)...)...).Exits(1)
		if !strings.Contains(r.Stderr, refused.says) || !strings.Contains(r.Stderr, "`lapse config account`") {
			t.Errorf("watch of %s at %q: %s", refused.user, refused.api, r.Stderr)
		}
	}
}

// commandsInAccount checks the commands of a user, by its login, in an account of an
// application that imports the log, which has no collection yet.
func commandsInAccount(t *testing.T, login []string) {
	t.Helper()
	with := func(line string) []string { return append(strings.Fields(line), login...) }
	for _, step := range [][2]string{
		{"collection create orders", `"id":"orders"`},
		{"document create orders a {}", `"id":"a"`},
		{"export", "DocumentCreated"},
		{"audit --json", `"DocumentCreated":1`},
		{"status --all --json", `"role":"writer"`},
		{"history orders a", "DocumentCreated"},
	} {
		if got := harness.Run(t, nil, with(step[0])...).OK(); !strings.Contains(got, step[1]) {
			t.Errorf("%s %v: %s", step[0], login, got)
		}
	}
	f := harness.Follow(t, with("watch --since 1")...)
	for !strings.Contains(f.Line(), "DocumentCreated") {
	}
	f.Interrupt().OK()
}

// goInAccount reads the one document that was created by durables, submits another, and makes
// a bucket of the account.
func goInAccount(t *testing.T, c *client.Client, durables ...string) {
	t.Helper()
	for _, durable := range durables {
		handled := 0
		err := c.Handle(t.Context(), func(context.Context, *client.Event) error { handled++; return nil },
			client.Durable(durable), client.FromStart(), client.UntilNow(), client.OfType(client.DocumentCreated))
		if err != nil || handled != 1 {
			t.Errorf("Handle by %s: %d events, %v", durable, handled, err)
		}
	}
	if _, err := c.Submit(t.Context(), "document.upsert", "orders", "b", struct{}{}); err != nil {
		t.Errorf("Submit: %v", err)
	}
	own, err := jetstream.New(c.Conn())
	check(t, err)
	bucket, err := own.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "own", MaxBytes: 1 << 20})
	if err == nil {
		_, err = bucket.PutString(t.Context(), "a", "b")
	}
	if err != nil {
		t.Errorf("a bucket of the account: %v", err)
	}
}
