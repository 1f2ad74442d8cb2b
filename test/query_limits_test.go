package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
)

const (
	limited = 1000 // number of documents of limitedServer
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
	load(t, nc, "c", numbered(limited))
	return s, nc
}

// numbered returns documents d0000, d0001, …
func numbered(n int) (documents []hitDocument) {
	for i := range n {
		id := fmt.Sprintf("d%04d", i)
		documents = append(documents, hitDocument{id, map[string]any{
			"id": id, "n": float64(i), "m": float64(n - i), "third": float64(i % 3),
			"text": strings.Repeat("x", 50), "ns": []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
		}})
	}
	return documents
}

// idsOf returns the ids of documents.
func idsOf(t testing.TB, documents []json.RawMessage) (ids []string) {
	t.Helper()
	for _, d := range documents {
		var document struct{ ID string }
		unmarshal(t, d, &document)
		ids = append(ids, document.ID)
	}
	return ids
}

// refused checks that a query is refused with a code and name of the contract, and a
// message.
func refused(t testing.TB, nc *nats.Conn, collection, body string, code int, name string) {
	t.Helper()
	a := mustAsk(t, nc, code, "query."+collection, body)
	var fault struct {
		Code           int
		Error, Message string
	}
	unmarshal(t, a.body, &fault)
	if fault.Code != code || fault.Error != name || fault.Message == "" {
		t.Errorf("%.200s is refused with %s, want %d %s", body, a.body, code, name)
	}
}

// stillServes checks that the server answers other requests.
func stillServes(t testing.TB, nc *nats.Conn) {
	t.Helper()
	mustAsk(t, nc, 200, "document.get.c.d0007", "")
	mustAsk(t, nc, 200, "document.upsert.c.d0000", marshal(t, numbered(1)[0].members))
	if n := askStatus(t, nc).Documents; n != limited {
		t.Errorf("there are %d documents, want %d", n, limited)
	}
}

// TestQueryLimits: with each limit of serve set low, queries beyond it are refused, and
// others are answered.
func TestQueryLimits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args  []string
		over  []string // queries beyond the limit
		code  int
		error string
		fits  []string // queries within it
	}{
		{[]string{"--query-scanned=50"},
			[]string{`{"where":"doc.m < 0"}`, `{"where":"doc.m < 0","count":true}`, `{"orderBy":[{"path":"/m"}]}`, `{"where":"doc.n >= 0","count":true}`},
			413, "too_large",
			[]string{`{"limit":10}`, `{"where":"doc.n < 50"}`, `{"where":"doc.n >= 980","count":true}`, `{"orderBy":[{"path":"/n"}],"limit":20}`, `{"count":true}`}},
		{[]string{"--query-bytes=3000"},
			[]string{`{}`, `{"limit":1000,"select":["/text"]}`, `{"orderBy":[{"path":"/m"}]}`},
			413, "too_large",
			[]string{`{"limit":5}`, `{"limit":100,"select":["/n"]}`, `{"count":true}`, `{"where":"doc.third == 1","count":true}`}},
		{[]string{"--query-time=300ms"},
			[]string{marshal(t, map[string]any{"where": looping}), marshal(t, map[string]any{"where": looping, "count": true})},
			504, "timeout",
			[]string{`{"limit":5}`, `{"where":"doc.n < 5"}`, `{"count":true}`}},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			s, nc := limitedServer(t, test.args...)
			for _, body := range test.over {
				refused(t, nc, "c", body, test.code, test.error)
				stillServes(t, nc)
			}
			for _, body := range test.fits {
				eventually(t, body+" is answered", func() bool {
					a := ask(t, nc, "query.c", body)
					if a.code != 200 && a.code != 504 { // a slow machine may take longer
						t.Fatalf("%s: %d %s", body, a.code, a.body)
					}
					return a.code == 200
				})
			}
			s.Stop()
		})
	}
}

// TestQueryLimitsByPages: a result beyond a limit can be read page by page.
func TestQueryLimitsByPages(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"--query-scanned=50", "--query-bytes=3000"} {
		t.Run(arg, func(t *testing.T) {
			t.Parallel()
			s, nc := limitedServer(t, arg)
			c := clientOn(t, nc)
			coll, err := c.Collection(t.Context(), "c")
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for item, err := range client.Query[json.RawMessage](t.Context(), coll, client.OrderBy("/n", client.Asc), client.PageSize(40)) {
				if err != nil {
					t.Fatalf("after %d documents: %v", n, err)
				}
				if want := fmt.Sprintf("d%04d", n); item.ID != want {
					t.Fatalf("document %d is %s, want %s", n, item.ID, want)
				}
				n++
			}
			if n != limited {
				t.Errorf("%d documents, want %d", n, limited)
			}
			lines := harness.Lines(s.Run("query", "c", "--all", "--select", "id").OK())
			if len(lines) != limited {
				t.Errorf("the command prints %d documents, want %d", len(lines), limited)
			}
		})
	}
}

// clientOn returns a client with the timeout of the tests.
func clientOn(t testing.TB, nc *nats.Conn) *client.Client {
	t.Helper()
	c, err := client.New(nc, client.WithTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestQueryTimeIsReported: the client and the command report that the query timed out.
func TestQueryTimeIsReported(t *testing.T) {
	t.Parallel()
	s, nc := limitedServer(t, "--query-time=100ms")
	began := time.Now()
	r := s.Run("query", "c", "--where", looping)
	refusal(t, r, "timeout")
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("it took %s", took)
	}
	c := clientOn(t, nc)
	coll, err := c.Collection(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Count(t.Context(), coll, client.Where(looping, nil)); !errors.Is(err, client.ErrTimeout) {
		t.Errorf("the client says %v", err)
	}
}

// replies sends requests without waiting, to subjects below lapse.main.api., and returns
// their replies in order of arrival.
type replies struct {
	inbox string
	nc    *nats.Conn
	sub   *nats.Subscription
}

func newReplies(t testing.TB, nc *nats.Conn) *replies {
	t.Helper()
	r := &replies{inbox: nc.NewInbox(), nc: nc}
	var err error
	if r.sub, err = nc.SubscribeSync(r.inbox + ".*"); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *replies) send(t testing.TB, name, tail, body string) {
	t.Helper()
	if err := r.nc.PublishRequest("lapse.main.api."+tail, r.inbox+"."+name, []byte(body)); err != nil {
		t.Fatal(err)
	}
	if err := r.nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// next waits for the next reply and returns its name and code.
func (r *replies) next(t testing.TB) (name, code string) {
	t.Helper()
	m, err := r.sub.NextMsg(patience)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(m.Subject, r.inbox+"."), m.Header.Get("Lapse-Status")
}

// TestQueryQueue: beyond the workers and the queue, queries are refused at once, and other
// requests don't wait for any of them.
func TestQueryQueue(t *testing.T) {
	t.Parallel()
	s, nc := limitedServer(t, "--query-time=1s")
	loop := marshal(t, map[string]any{"where": looping})
	for range 2 { // twice, as the first round must leave nothing behind
		r := newReplies(t, nc)
		sent := 100 + runtime.NumCPU()
		for i := range sent {
			r.send(t, fmt.Sprint(i), "query.c", loop)
		}
		stillServes(t, nc)
		codes := make(map[string]int)
		for range sent {
			_, code := r.next(t)
			codes[code]++
		}
		if codes["504"] == 0 || codes["429"] == 0 || codes["504"]+codes["429"] != sent {
			t.Errorf("answered with %v, want 504 for those that had a turn and 429 for the others", codes)
		}
		eventually(t, "a query is answered again", func() bool { return ask(t, nc, "query.c", `{"limit":5}`).code == 200 })
	}
	s.Stop()
}

// TestLongQuery: a short query does not wait for a long one, and neither does SIGTERM,
// after which the long one is answered.
func TestLongQuery(t *testing.T) {
	t.Parallel()
	s, nc := limitedServer(t, "--query-time=10m")
	r := newReplies(t, nc)
	r.send(t, "long", "query.c", marshal(t, map[string]any{"where": looping}))
	r.send(t, "short", "query.c", `{"limit":5}`)
	if name, code := r.next(t); name != "short" || code != "200" {
		t.Errorf("the first answer is %s to the %s one", code, name)
	}
	s.Stop()
	if name, code := r.next(t); name != "long" || code != "503" {
		t.Errorf("at the end the answer is %s to the %s one, want 503", code, name)
	}
}

// TestQueryLimitUsage: limits that allow nothing, or are malformed, are wrong usage.
func TestQueryLimitUsage(t *testing.T) {
	t.Parallel()
	values := map[string][]string{"--query-time": {"0", "0s", "-1s", "5", "x", ""}}
	for _, flag := range []string{"scanned", "bytes"} {
		values["--query-"+flag] = []string{"0", "-1", "1.5", "x", ""}
	}
	help := harness.Run(t, nil, "serve", "--help").OK()
	for flag, wrong := range values {
		if !strings.Contains(help, flag+" ") {
			t.Errorf("serve --help does not mention %s", flag)
		}
		for _, value := range wrong {
			// Should it start after all, then not on anybody's store.
			r := harness.Run(t, nil, "serve", "--store-dir", "/dev/null/data", flag+"="+value).Exits(2)
			if !strings.Contains(r.Stderr, flag) {
				t.Errorf("%s=%s: it says %q, which does not name the flag", flag, value, r.Stderr)
			}
		}
	}
}
