package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
)

const (
	// looping costs nearly as much for each document as a condition may: no machine
	// finishes all documents in seconds.
	looping = `doc.ns.all(a, doc.ns.all(b, doc.ns.all(c, doc.ns.all(d, [a, b, c, d].all(e, e >= 0)))))`
)

// limitedServer starts a server with the given limits and fills the collection c.
func limitedServer(t testing.TB, args ...string) (*harness.Server, *nats.Conn) {
	t.Helper()
	s := harness.Serve(t, append([]string{"--durability", "os"}, args...)...)
	nc := dial(t, s)
	mustAsk(t, nc, 201, "collection.create.c", `{"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
	var operations []string
	for i := range 1000 {
		operations = append(operations, fmt.Sprintf(`{"op":"create","id":"d%d","body":{"n":%d,"m":%d,"text":%q,"ns":[0,1,2,3,4,5,6,7,8,9]}}`, i, i, -i, strings.Repeat("x", 50)))
	}
	mustAsk(t, nc, 200, "batch.c", `{"operations":[`+strings.Join(operations, ",")+`]}`)
	return s, nc
}

// TestQueryLimits: with the limits of serve set low, a query that scans too much or has one
// document that is too large is refused, others are answered, and a loop over pages that end
// early has every document once.
func TestQueryLimits(t *testing.T) {
	t.Parallel()
	s, nc := limitedServer(t, "--query-scanned=50", "--query-bytes=1500")
	for body, want := range map[string]string{
		`{"where":"doc.m > 0","count":true}`: "413 too_large",
		`{"where":"doc.n >= 70 && doc.ns.exists(a, a == 7)","orderBy":[{"path":"/n"}],"limit":20,"select":["/id"]}`: "200",
		`{"where":"((doc.n == 7))"}`: "200",
		`{"count":true}`:             "200",
	} {
		a := ask(t, nc, "query.c", body)
		var fault struct{ Error string }
		unmarshal(t, a.body, &fault)
		if got := strings.TrimSpace(fmt.Sprint(a.code, " ", fault.Error)); got != want {
			t.Errorf("%s: %d %s, want %s", body, a.code, a.body, want)
		}
		mustAsk(t, nc, 200, "document.get.c.d7", "")
	}
	mustAsk(t, nc, 201, "document.create.c.x", fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 1500)))
	if a := ask(t, nc, "query.c", `{"idPrefix":"x"}`); a.code != 413 || !strings.Contains(string(a.body), `\"x\"`) {
		t.Errorf("a document that is too large: %d %s", a.code, a.body)
	}
	c, err := client.New(nc, client.WithTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	coll, err := c.Collection(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for item, err := range client.Query[json.RawMessage](t.Context(), coll, client.IDPrefix("d10"), client.PageSize(30)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, item.ID)
	}
	want := []string{"d10", "d100", "d101", "d102", "d103", "d104", "d105", "d106", "d107", "d108", "d109"}
	if !slices.Equal(got, want) {
		t.Errorf("the client has %v", got)
	}
	if r := s.Run("query", "c", "--id-prefix", "d10", "--select", "id", "--all"); strings.Count(r.Stdout, "\n") != len(want) {
		t.Errorf("the command prints %s", r.Stdout)
	}
	s.Stop()
}

// TestQueryQueue: beyond those that run and those that wait queries are refused at once,
// and other requests don't wait for any of them. Client and command report that a query
// timed out. SIGTERM doesn't wait for one, which is answered.
func TestQueryQueue(t *testing.T) {
	t.Parallel()
	s, nc := limitedServer(t, "--query-time=1s")
	inbox := nc.NewInbox()
	replies, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	send := func() {
		t.Helper()
		if err := nc.PublishRequest("lapse.main.api.query.c", inbox, []byte(`{"where":"`+looping+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	next := func() string {
		t.Helper()
		m, err := replies.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		return m.Header.Get("Lapse-Status")
	}
	for range 2 { // twice, as the first round must leave nothing
		sent := 100 + runtime.NumCPU() // more than run and wait
		for range sent {
			send()
		}
		mustAsk(t, nc, 200, "document.get.c.d7", "")
		mustAsk(t, nc, 200, "document.patch.c.d7", `{}`)
		codes := make(map[string]int)
		for range sent {
			codes[next()]++
		}
		if codes["504"] == 0 || codes["429"] == 0 || codes["504"]+codes["429"] != sent {
			t.Errorf("answered with %v, want 504 for those that had a turn and 429 for the others", codes)
		}
		eventually(t, "a query is answered again", func() bool { return ask(t, nc, "query.c", `{"limit":5}`).code == 200 })
	}
	refusal(t, s.Run("query", "c", "--where", looping), "timeout")
	c, err := client.New(nc, client.WithTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	coll, err := c.Collection(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Count(t.Context(), coll, client.Where(looping, nil)); !errors.Is(err, client.ErrTimeout) {
		t.Errorf("the client says %v", err)
	}

	s.Stop()
	s.With("--durability", "os", "--query-time=10m")
	s.Restart()
	eventually(t, "the service is back", func() bool {
		a, err := tryAskFor(nc, "query.c", `{"limit":5}`, hasty)
		return err == nil && a.code == 200
	})
	send()
	mustAsk(t, nc, 200, "query.c", `{"limit":5}`) // by the other worker
	s.Stop()
	if code := next(); code != "503" {
		t.Errorf("at the end the long query is answered with %s, want 503", code)
	}
}

func unmarshal(t testing.TB, text []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatalf("%.500s: %v", text, err)
	}
}
