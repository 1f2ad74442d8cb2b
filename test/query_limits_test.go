package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
)

// looping costs nearly as much for each document as a condition may: no machine finishes
// all documents in seconds.
const looping = `doc.ns.all(a, doc.ns.all(b, doc.ns.all(c, doc.ns.all(d, [a, b, c, d].all(e, e >= 0)))))`

// TestQueryLimits: with the limits of serve set low, a query beyond any one of them is
// refused, others are answered, and a loop over pages that end early has every document
// once. SIGTERM doesn't wait for a long query, which is answered.
func TestQueryLimits(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t, "--durability", "os", "--query-scanned=50", "--query-bytes=1500")
	nc := dial(t, s)
	mustAsk(t, nc, 201, "collection.create.c", `{"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
	var operations []string
	for i := range 1000 {
		operations = append(operations, fmt.Sprintf(`{"op":"create","id":"d%d","body":{"n":%d,"m":%d,"text":%q,"ns":[0,1,2,3,4,5,6,7,8,9]}}`, i, i, -i, strings.Repeat("x", 50)))
	}
	mustAsk(t, nc, 200, "batch.c", `{"operations":[`+strings.Join(operations, ",")+`]}`)
	for body, want := range map[string]string{
		`{"where":"doc.m > 0","count":true}`: "413 too_large",
		`{"where":"doc.n >= 70 && doc.ns.exists(a, a == 7)","orderBy":[{"path":"/n"}],"limit":20,"select":["/id"]}`: "200",
		`{"where":"((doc.n == 7))"}`: "200",
		`{"count":true}`:             "200",
	} {
		a := ask(t, nc, "query.c", body)
		var fault struct{ Error string }
		if err := json.Unmarshal(a.body, &fault); err != nil {
			t.Fatalf("%.500s: %v", a.body, err)
		}
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
	check(t, err)
	coll, err := c.Collection(t.Context(), "c")
	check(t, err)
	var got []string
	for item, err := range client.Query[json.RawMessage](t.Context(), coll, client.IDPrefix("d10"), client.PageSize(30)) {
		check(t, err)
		got = append(got, item.ID)
	}
	want := []string{"d10", "d100", "d101", "d102", "d103", "d104", "d105", "d106", "d107", "d108", "d109"}
	if !slices.Equal(got, want) {
		t.Errorf("the client has %v", got)
	}
	if r := s.Run("query", "c", "--id-prefix", "d10", "--select", "id", "--all"); strings.Count(r.Stdout, "\n") != len(want) {
		t.Errorf("the command prints %s", r.Stdout)
	}

	restart := func(limit string) {
		t.Helper()
		s.Stop()
		s.With("--durability", "os", limit)
		s.Restart()
		eventually(t, "the service is back", func() bool {
			a, err := tryAskFor(nc, "query.c", `{"limit":5}`, hasty)
			return err == nil && a.code == 200
		})
	}
	restart("--query-time=100ms")
	mustAsk(t, nc, 504, "query.c", `{"where":"`+looping+`"}`)
	restart("--query-time=10m")
	replies, err := nc.SubscribeSync(nc.NewInbox())
	if err == nil {
		err = nc.PublishRequest("lapse.main.api.query.c", replies.Subject, []byte(`{"where":"`+looping+`"}`))
	}
	check(t, err)
	mustAsk(t, nc, 200, "query.c", `{"limit":5}`) // by the other worker
	s.Stop()
	if m, err := replies.NextMsg(patience); err != nil || m.Header.Get("Lapse-Status") != "503" {
		t.Errorf("at the end the long query is answered with %+v, %v", m, err)
	}
}
