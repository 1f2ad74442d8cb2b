package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// TestFaultIsNoDenial: the error of a fault that may pass says to try again. It is not
// about permissions or settings, of which nothing is known.
func TestFaultIsNoDenial(t *testing.T) {
	c := &Client{database: "main"}
	for _, fault := range []error{nats.ErrTimeout, context.DeadlineExceeded, nats.ErrNoResponders, jetstream.ErrNoStreamResponse} {
		for _, err := range []error{c.feedError(fault), c.transportError(fault)} {
			text := err.Error()
			if errors.Is(fault, jetstream.ErrNoStreamResponse) && !strings.Contains(text, "no stream accepts") {
				continue // a request has no such error
			}
			if !strings.Contains(text, "try again") || strings.Contains(text, "permission") || strings.Contains(text, "this user") || strings.Contains(text, "have no JetStream") {
				t.Errorf("%v: %s", fault, text)
			}
		}
	}
}

// TestInboxDenied: every call of a user who may not receive replies says so, also after
// the first, for which alone the server reports it.
func TestInboxDenied(t *testing.T) {
	ns := harness.StartNATS(t, &server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, Users: []*server.User{{Username: "auditor", Password: "x",
		Permissions: &server.Permissions{Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.auditor.>"}}}}}})
	c, err := Connect("", WithTimeout(100*time.Millisecond), WithNATSOptions(nats.InProcessServer(ns), nats.UserInfo("auditor", "x")))
	check(t, err)
	defer c.Close()
	says := func(err error) bool {
		return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), "no permission to receive replies at _INBOX.>")
	}
	for end := time.Now().Add(time.Minute); ; { // the server's report may come later than the timeout
		_, err := c.Status(t.Context())
		if says(err) {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	for name, call := range map[string]func(context.Context) error{
		"status":    func(ctx context.Context) error { _, err := c.Status(ctx); return err },
		"processes": func(ctx context.Context) error { _, err := c.Processes(ctx); return err },
		"submit":    func(ctx context.Context) error { _, err := c.Submit(ctx, "document.delete", "c", "a", nil); return err },
		"bounds":    func(ctx context.Context) error { _, _, err := c.LogBounds(ctx); return err },
		"changes": func(ctx context.Context) error {
			for _, err := range c.Changes(ctx) {
				return err
			}
			return nil
		},
	} {
		if err := call(t.Context()); !says(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMessagesNameFunctions: where lapse names operations of the wire, an error names functions
// of this package.
func TestMessagesNameFunctions(t *testing.T) {
	for operations, want := range map[string]string{
		schema.NoCollection("c").Message:                        "create it with CreateCollection",
		"there is a c: change it with collection.replace":       "change it with ReplaceCollection",
		"x: change it with document.replace or document.upsert": "change it with Replace or Upsert",
	} {
		body, _ := json.Marshal(map[string]string{"error": "x", "message": operations})
		if got := parseError(404, body, "").Message; !strings.HasSuffix(got, ": "+want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestNoLogHere: without a log, or JetStream, an error names the domain or prefix that was
// asked, and how to give another one.
func TestNoLogHere(t *testing.T) {
	url := harness.StartNATS(t, harness.NATSOptions(t.TempDir())).ClientURL()
	for _, test := range []struct {
		opt  Option
		says string
	}{
		{WithTimeout(time.Minute), "has no log at $JS.API.>: start `lapse serve --database main`, connect to the NATS server and account that has it, or give the prefix"},
		{WithJetStreamDomain("hub"), `JetStream of domain "hub": leave the domain out`},
		{APIPrefix("LAPSE.API"), "nobody answers requests to JetStream at LAPSE.API.> now"},
	} {
		c, err := Connect(url, test.opt)
		check(t, err)
		defer c.Close()
		if _, _, err := c.LogBounds(t.Context()); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v, want %s", err, test.says)
		}
	}
}

// TestLogNotImported: where lapse answers requests and the account has no log, the error
// doesn't advise to start lapse, but says how an account gets the log.
func TestLogNotImported(t *testing.T) {
	url := harness.StartNATS(t, harness.NATSOptions(t.TempDir())).ClientURL()
	served := harness.Dial(t, url)
	if _, err := served.Subscribe("lapse.main.api.status", func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Data: []byte(`{}`), Header: nats.Header{"Lapse-Status": {"200"}}})
	}); err != nil {
		t.Fatal(err)
	}
	check(t, served.Flush())
	c, err := Connect(url)
	check(t, err)
	defer c.Close()
	_, _, said := c.LogBounds(t.Context())
	if !errors.Is(said, ErrUnavailable) || !errors.Is(said, jetstream.ErrStreamNotFound) || !strings.Contains(said.Error(), "--js-api-prefix") || !strings.Contains(said.Error(), "`lapse config account`") {
		t.Error(said)
	}
}

// stingy is a NATS server that tells its max_payload when it is exceeded, as in the moment
// after a reconnect.
type stingy struct{}

func (stingy) InProcessConn() (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		fmt.Fprint(server, "INFO {\"server_id\":\"x\",\"headers\":true,\"max_payload\":4194304}\r\n")
		for lines := bufio.NewScanner(server); lines.Scan(); {
			switch {
			case lines.Text() == "PING":
				fmt.Fprint(server, "PONG\r\n")
			case strings.Contains(lines.Text(), "lapse.main.api.document.upsert."):
				go func() { _, _ = io.Copy(io.Discard, server) }()
				fmt.Fprint(server, "INFO {\"server_id\":\"x\",\"headers\":true,\"max_payload\":20000}\r\n-ERR 'Maximum Payload Violation'\r\n")
				return
			}
		}
	}()
	return client, nil
}

// TestClosedForPayload: a request for whose size NATS closes the connection is too large,
// and no repeat helps.
func TestClosedForPayload(t *testing.T) {
	c, err := Connect("nats://x", WithNATSOptions(nats.InProcessServer(stingy{})))
	check(t, err)
	defer c.Close()
	_, err = c.Do(t.Context(), "document.upsert", "orders", "a", []byte(`"`+strings.Repeat("x", 30000)+`"`))
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "(20000 bytes)") {
		t.Error(err)
	}
}

// TestLoginEnds: a client whose login NATS refuses from now on says so, goes on trying, and
// is back with a renewed one.
func TestLoginEnds(t *testing.T) {
	options := func(password string) *server.Options {
		return &server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, Users: []*server.User{{Username: "app", Password: password}}}
	}
	ns := harness.StartNATS(t, options("old"))
	var password atomic.Value
	password.Store("old")
	c, err := Connect(ns.ClientURL(), WithTimeout(100*time.Millisecond), WithNATSOptions(nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.UserInfoHandler(func() (string, string) { return "app", password.Load().(string) })))
	check(t, err)
	defer c.Close()
	status := func() error { _, err := c.Status(t.Context()); return err }
	bounds := func() error { _, _, err := c.LogBounds(t.Context()); return err }
	eventually := func(what string, call func() error, is func(error) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; {
			err := call()
			if is(err) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	check(t, ns.ReloadOptions(options("new")))
	refused := func(err error) bool {
		return errors.Is(err, ErrTimeout) && strings.Contains(err.Error(), "refuses these credentials")
	}
	eventually("refused", status, refused)
	eventually("refused to a reader", bounds, refused)
	password.Store("new")
	eventually("renewed", status, func(err error) bool { return errors.Is(err, nats.ErrNoResponders) })
}
