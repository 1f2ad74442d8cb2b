package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/test/harness"
)

// TestContext: a context of the nats command is enough to connect, also for serve.
func TestContext(t *testing.T) {
	s := newStandin(t)
	s.answer("status", 200, `{"database":"main"}`, false)
	writeContexts(t, map[string]string{"here": s.server.ClientURL()})
	for name, want := range map[string]string{"here": "{\"database\":\"main\"}\n", "there": "lapse: NATS context \"there\": unknown context \"there\": list the contexts with `nats context ls`\n"} {
		var out bytes.Buffer
		newApp(strings.NewReader(""), &out, &out).run(t.Context(), []string{"status", "--context", name})
		if out.String() != want {
			t.Errorf("%s: got %q, want %q", name, out.String(), want)
		}
	}
	nc, err := (&externalFlags{logins: map[string]login{"": {"context", "here"}}}).connect(host.LogConnection) // of serve
	check(t, err)
	nc.Close()
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"--version", "version"} {
		code, out := lapse(t, arg)
		if code != 0 || out != versionLine()+"\n" {
			t.Errorf("%s: %d %q", arg, code, out)
		}
	}
}

// TestEnvironment: NATS_URL and NATS_CONTEXT name the server of client commands, flags
// override them, and the URL overrides that of the context.
func TestEnvironment(t *testing.T) {
	s := newStandin(t)
	s.answer("status", 200, `{"database":"main"}`, false)
	here, nowhere := s.server.ClientURL(), "nats://127.0.0.1:1"
	writeContexts(t, map[string]string{"here": here, "nowhere": nowhere})
	for _, test := range []struct {
		url, context string
		flags        []string
		reached      bool
	}{
		{here, "", nil, true},
		{"", "here", nil, true},
		{nowhere, "", nil, false},
		{nowhere, "", []string{"--server", here}, true},
		{nowhere, "", []string{"--context", "here"}, true},
		{"", "nowhere", []string{"--server", here}, true},
		{"", "unknown", []string{"--server", here}, true},
		{here, "nowhere", nil, true},
		{nowhere, "here", nil, false},
		{here, "here", []string{"--server", nowhere}, false},
	} {
		t.Setenv("NATS_URL", test.url)
		t.Setenv("NATS_CONTEXT", test.context)
		code, out := lapse(t, append([]string{"status"}, test.flags...)...)
		if reached := code == exitDone; reached != test.reached || strings.Count(out, "\n") != 1 {
			t.Errorf("NATS_URL=%s NATS_CONTEXT=%s %v: %s", test.url, test.context, test.flags, out)
		}
	}
}

// writeContexts makes contexts of the nats command, by name and URL.
func writeContexts(t *testing.T, urls map[string]string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	contexts := filepath.Join(dir, "nats", "context")
	check(t, os.MkdirAll(contexts, 0o700))
	for name, url := range urls {
		check(t, os.WriteFile(filepath.Join(contexts, name+".json"), []byte(`{"url":"`+url+`"}`), 0o600))
	}
}

// TestLoginFlags: --nkey and --creds log in, also instead of the login of a context.
func TestLoginFlags(t *testing.T) {
	pair, err := nkeys.CreateUser()
	check(t, err)
	seed, _ := pair.Seed()
	public, _ := pair.PublicKey()
	file := filepath.Join(t.TempDir(), "user.nk")
	check(t, os.WriteFile(file, seed, 0o600))
	s := startNATS(t, &server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}})
	writeContexts(t, map[string]string{"wrong": s.ClientURL() + `","user":"some","password":"body`})
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--server", s.ClientURL(), "--nkey", file}, exitFailed, `no process serves database "main"`}, // the login succeeded
		{[]string{"--context", "wrong", "--nkey", file}, exitFailed, `no process serves database "main"`},
		{[]string{"--server", s.ClientURL()}, exitFailed, "refuses these credentials"},
		{[]string{"--server", s.ClientURL(), "--nkey", file + ".not"}, exitFailed, "give a file with the seed of a user"},
		{[]string{"--nkey", file, "--creds", file}, exitUsage, "--creds and --nkey given"},
		{[]string{"--tls-cert", file}, exitUsage, "--tls-cert and --tls-key go together"},
		{[]string{"--server", s.ClientURL(), "--nkey", file, "--tls-ca", file}, exitFailed, "user.nk"},
	} {
		code, out := lapse(t, append([]string{"status"}, test.args...)...)
		if code != test.code || !strings.Contains(out, test.says) || strings.Count(out, "\n") != 1 {
			t.Errorf("%v: %d %s", test.args, code, out)
		}
	}
}

// TestAPIPrefix: --js-api-prefix is where the API of JetStream is asked, instead of prefix
// and domain of a context.
func TestAPIPrefix(t *testing.T) {
	s := startNATS(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
	url := s.ClientURL()
	writeContexts(t, map[string]string{"app": url + `","jetstream_api_prefix":"APP.API`, "both": url + `","jetstream_domain":"hub","jetstream_api_prefix":"APP.API`})
	nobody := func(prefix string) string { return "nobody answers requests to JetStream at " + prefix + ".API.> now" }
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"--server " + url, exitFailed, `database "main" has no log at $JS.API.>: start`},
		{"--server " + url + " --js-api-prefix FLAG.API", exitFailed, nobody("FLAG")},
		{"--context app", exitFailed, nobody("APP")},
		{"--context app --js-api-prefix FLAG.API", exitFailed, nobody("FLAG")},
		{"--context both --js-api-prefix FLAG.API", exitFailed, nobody("FLAG")},
		{"--context both", exitFailed, "a JetStream domain (hub) and an API prefix (APP.API) are given"},
		{"--js-api-prefix FLAG.>", exitUsage, `--js-api-prefix "FLAG.>"`},
		{"--js-api-prefix=", exitUsage, "--js-api-prefix"},
	} {
		code, out := lapse(t, append([]string{"export", "--timeout", "1m"}, strings.Fields(test.args)...)...)
		if code != test.code || !strings.Contains(out, test.says) || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: %d %s", test.args, code, out)
		}
	}
}

// TestInboxPrefix: --inbox-prefix is where replies are received, also instead of the
// prefix of a context; without it, the error of a user who has another says so.
func TestInboxPrefix(t *testing.T) {
	s := startNATS(t, &server.Options{Users: []*server.User{{Username: "auditor", Password: "x",
		Permissions: &server.Permissions{Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.auditor.>"}}}}}})
	url := strings.Replace(s.ClientURL(), "://", "://auditor:x@", 1)
	writeContexts(t, map[string]string{"wrong": url + `","inbox_prefix":"_WRONG`})
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"--server " + url, exitFailed, "no permission to receive replies at _INBOX.>: connect with its inbox prefix (--inbox-prefix,"},
		{"--context wrong", exitFailed, "no permission to receive replies at _WRONG.>"},
		{"--server " + url + " --inbox-prefix _INBOX.auditor", exitFailed, `no process serves database "main"`}, // the reply came
		{"--context wrong --inbox-prefix _INBOX.auditor", exitFailed, `no process serves database "main"`},
		{"--server " + url + " --inbox-prefix _INBOX.>", exitUsage, `--inbox-prefix "_INBOX.>"`},
		{"--inbox-prefix=", exitUsage, "--inbox-prefix"},
		{"--of 127.0.0.1:1 --inbox-prefix mine", exitUsage, "--of and --inbox-prefix given"},
	} {
		code, out := lapse(t, append([]string{"status", "--timeout", "1m"}, strings.Fields(test.args)...)...)
		if code != test.code || !strings.Contains(out, test.says) || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: %d %s", test.args, code, out)
		}
	}
}

// startNATS starts a NATS server until the test ends.
func startNATS(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	return harness.StartNATS(t, o)
}

// TestMissingPermission: a command whose user lacks a permission reports that at once, by
// flags and by context.
func TestMissingPermission(t *testing.T) {
	user := func(name string, publish, subscribe string) *server.User {
		deny := func(subject string) *server.SubjectPermission {
			if subject == "" {
				return nil
			}
			return &server.SubjectPermission{Deny: []string{subject}}
		}
		return &server.User{Username: name, Password: name, Permissions: &server.Permissions{Publish: deny(publish), Subscribe: deny(subscribe)}}
	}
	s := startNATS(t, &server.Options{JetStream: true, StoreDir: t.TempDir(), Users: []*server.User{
		user("requests", "lapse.>", ""), user("inbox", "", "_INBOX.>"), user("log", "$JS.API.>", ""), user("services", "$SRV.>", "")}})
	urls := map[string]string{}
	for _, name := range []string{"requests", "inbox", "log", "services"} {
		urls[name] = strings.Replace(s.ClientURL(), "://", "://"+name+":"+name+"@", 1)
	}
	writeContexts(t, urls)
	for _, test := range []struct{ user, command string }{
		{"requests", "status"}, {"requests", "document get c a"}, {"requests", "query c"}, {"requests", "collection list"},
		{"inbox", "status"}, {"inbox", "document get c a"}, {"inbox", "export"}, {"inbox", "status --all"},
		{"log", "export"}, {"log", "watch"}, {"log", "audit"},
		{"services", "status --all"},
	} {
		for _, where := range [][]string{{"--server", urls[test.user]}, {"--context", test.user}} {
			var out bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			code := newApp(strings.NewReader(""), &out, &out).run(ctx, append(append(strings.Fields(test.command), "--timeout", "1h"), where...))
			cancel()
			if text := out.String(); code != exitFailed || !strings.Contains(text, "permission") || strings.Count(text, "\n") != 1 || ctx.Err() == context.DeadlineExceeded {
				t.Errorf("%s %s %s: %d %s", test.user, test.command, where[0], code, text)
			}
		}
	}
}

// TestSilentServer: serve and commands wait longer than nats.go does for a server that
// accepts connections and is too busy to send anything.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	s := startNATS(t, &server.Options{})
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	var proxy sync.WaitGroup
	defer proxy.Wait()
	defer busy.Close()
	proxy.Go(func() {
		for n := 0; ; n++ {
			conn, err := busy.Accept()
			if err != nil {
				return
			}
			if n%4 < 2 { // an attempt, and the question what answers there
				defer conn.Close()
				continue
			}
			through, err := net.Dial("tcp", strings.TrimPrefix(s.ClientURL(), "nats://"))
			if err != nil {
				conn.Close()
				return
			}
			proxy.Go(func() { defer through.Close(); _, _ = io.Copy(through, conn) })
			proxy.Go(func() { defer conn.Close(); _, _ = io.Copy(conn, through) })
		}
	})
	f := &externalFlags{url: busy.Addr().String()}
	nc, err := f.connect(host.LogConnection)
	check(t, err)
	nc.Close()
	c := connection{server: busy.Addr().String(), database: "main", timeout: time.Minute}
	_, hangUp, err := c.connect(t.Context())
	check(t, err)
	hangUp()
}

// TestNotNATS: an address that is not one of NATS is wrong usage, and a server that speaks
// something else is called that, without advice to try again; for serve, commands and contexts.
func TestNotNATS(t *testing.T) {
	banner, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	var greeter sync.WaitGroup
	defer greeter.Wait()
	defer banner.Close()
	greeter.Go(func() {
		for {
			conn, err := banner.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_9.6\r\n")
			conn.Close()
		}
	})
	here := banner.Addr().String()
	writeContexts(t, map[string]string{"web": "http://" + here, "shell": "nats://" + here})
	for _, test := range []struct {
		server string
		code   int
		says   string
	}{
		{"http://u:secret@127.0.0.1:8280", exitUsage, "http://u:xxxxx@127.0.0.1:8280 is not the address of a NATS server: use nats://HOST:PORT, or tls, ws or wss"},
		{"nats://127.0.0.1:1,https://127.0.0.1", exitUsage, "https://127.0.0.1 is not the address"},
		{"nats://u:secret@127.0.0.1:port", exitUsage, `malformed: invalid port ":port" after host: use nats://HOST:PORT`},
		{"nats://" + here, exitFailed, "the server at nats://" + here + " speaks something else, not NATS"},
		{here, exitFailed, "speaks something else, not NATS"},
		{"ws://" + here, exitFailed, "cannot connect to"},
	} {
		store := t.TempDir()
		for _, command := range [][]string{
			{"status", "--server", test.server}, {"status"}, {"watch", "--server", test.server},
			{"serve", "--nats-url", test.server, "--store-dir", store},
			{"snapshot", "restore", "--nats-url", test.server, "--store-dir", store},
		} {
			t.Setenv(serverVariable, test.server)
			var out bytes.Buffer
			code := newApp(strings.NewReader(""), &out, &out).run(t.Context(), command)
			text := strings.ReplaceAll(out.String(), `\"`, `"`) // in log lines
			if code != test.code || !strings.Contains(text, test.says) || strings.Contains(text, "try again") || strings.Contains(text, "secret") || strings.Count(text, "\n") != 1 {
				t.Errorf("%v: %d %s", command, code, text)
			}
		}
	}
	t.Setenv(serverVariable, "")
	for name, want := range map[string]int{"web": exitUsage, "shell": exitFailed} {
		var out bytes.Buffer
		if code := newApp(strings.NewReader(""), &out, &out).run(t.Context(), []string{"status", "--context", name}); code != want || !strings.Contains(out.String(), "NATS") || strings.Contains(out.String(), "nats context ls") {
			t.Errorf("context %s: %d %s", name, code, out.String())
		}
	}
}
