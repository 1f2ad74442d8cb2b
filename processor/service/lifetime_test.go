package service_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
)

// lifetime returns the deadline and rule in the headers of a reply.
func lifetime(r processortest.Reply) [2]string {
	return [2]string{r.Header.Get("Lapse-Deadline"), r.Header.Get("Lapse-Rule")}
}

// TestDeadlineHeaders: a reply about one live document carries its deadline and rule, by
// the TTL table; no other reply does.
func TestDeadlineHeaders(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		due := func(r processortest.Reply, seconds int64, rule string) {
			t.Helper()
			want := [2]string{}
			if rule != "" {
				want = [2]string{strconv.FormatInt(w.TS(r)+seconds, 10), rule}
			}
			if got := lifetime(r); got != want {
				t.Errorf("%s: %v, want %v", r, got, want)
			}
		}
		w.Want(201, "collection.create.c", `{"defaultTtl":100}`)
		due(w.Want(201, "document.create.c.a", `{}`), 100, "collection")
		due(w.Want(200, "document.get.c.a", ``), 100, "collection")
		due(w.Want(200, "document.replace.c.a", `{"ttl":30}`), 30, "document")
		due(w.Want(200, "document.touch.c.a", ``), 30, "document")
		due(w.Want(200, "document.patch.c.a", `{"ttl":-1}`), 0, "")
		due(w.Want(200, "document.upsert.c.a", `{}`, "Nats-Msg-Id", "m"), 100, "collection")
		due(w.Want(200, "document.upsert.c.a", `{}`, "Nats-Msg-Id", "m"), 100, "collection")
		due(w.Want(201, "document.upsert.c.b", `{"ttl":7}`), 7, "document")
		due(w.Want(200, "document.get.c.b", ``, "Lapse-Min-Seq", "1"), 7, "document")
		w.Want(204, "document.delete.c.b", ``)
		due(w.Want(201, "document.restore.c.b", ``), 7, "document")
		for _, tail := range []string{"collection.get.c", "query.c", "history.c.a", "status"} {
			if got := lifetime(w.Want(200, tail, ``)); got != [2]string{} {
				t.Errorf("%s: %v", tail, got)
			}
		}
		if got := lifetime(w.Refused(409, "document_exists", "document.create.c.a", `{}`)); got != [2]string{} {
			t.Errorf("an error has %v", got)
		}
		w.Want(200, "collection.replace.c", `{"defaultTtl":50}`)
		due(w.Want(200, "document.get.c.a", ``), 50, "collection")
		w.Want(200, "collection.replace.c", `{}`)
		due(w.Want(200, "document.get.c.a", ``), 0, "")
	})
}

// TestHoldHeaders: replies about a held document carry the reason, made fit for a header,
// and no deadline; after the release they carry the deadline as if it had not been held.
func TestHoldHeaders(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":100}`)
		ts := w.TS(w.Want(201, "document.create.c.a", `{}`))
		held := func(r processortest.Reply, want string) {
			t.Helper()
			if got := r.Header["Lapse-Hold"]; len(got) != 1 || got[0] != want || lifetime(r) != [2]string{} {
				t.Errorf("%s has %q and %v, want %q", r, got, lifetime(r), want)
			}
		}
		held(w.Want(200, "document.hold.c.a", ``, "Nats-Msg-Id", "m"), "")
		held(w.Want(200, "document.hold.c.a", ``, "Nats-Msg-Id", "m"), "")
		held(w.Want(200, "document.hold.c.a", `{"reason":"a\r\nb: ü"}`), "a  b: ü")
		processortest.SleepUntil(ts+200, 0)
		held(w.Want(200, "document.get.c.a", ``), "a  b: ü")
		held(w.Want(200, "document.get.c.a", ``, "Lapse-Min-Seq", "1"), "a  b: ü")
		held(w.Want(200, "document.patch.c.a", `{"n":1}`), "a  b: ü")
		w.Restart()
		held(w.Want(200, "document.touch.c.a", ``), "a  b: ü")
		processortest.SleepUntil(ts+250, 0)
		r := w.Want(200, "document.release.c.a", ``)
		if lifetime(r) != [2]string{strconv.FormatInt(ts+300, 10), "collection"} || r.Header.Get("Lapse-Hold") != "" {
			t.Errorf("released: %v", r.Header)
		}
		w.Refused(409, "not_held", "document.release.c.a", ``)
		w.Want(200, "document.hold.c.a", ``)
		processortest.SleepUntil(ts+400, 0)
		w.Want(200, "document.release.c.a", ``)
		w.Refused(404, "document_not_found", "document.get.c.a", ``)
		w.Eventually("expired", func() bool { return w.Events()[len(w.Events())-1].Type == schema.DocumentExpired })
		var status schema.Status
		w.Check(json.Unmarshal(w.Want(200, "status", ``).Body, &status))
		if status.LatenessMs.Max > 1000 || status.Held != 0 {
			t.Errorf("a document that was overdue when it was released: %+v, %d held", status.LatenessMs, status.Held)
		}
		w.Refused(400, "bad_request", "document.hold.c.a", `{"reason":"`+strings.Repeat("x", 1025)+`"}`)
	})
}

// TestDueQueries: a due query pages through documents in order of deadline and id, by
// either rule, and leaves out those without a deadline or past it.
func TestDueQueries(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":100}`)
		type entry struct {
			ID       string
			Deadline int64 `json:"_deadline"`
		}
		var want []entry
		var first int64
		for n := range 60 {
			id := fmt.Sprintf("d%02d", n*37%60)
			ttl := []string{"", `,"ttl":-1`, fmt.Sprintf(`,"ttl":%d`, 90+n%13), `,"ttl":1`}[n%4]
			ts := w.TS(w.Want(201, "document.create.c."+id, fmt.Sprintf(`{"n":%d%s}`, n, ttl)))
			switch n % 4 {
			case 0:
				want = append(want, entry{id, ts + 100})
			case 2:
				want = append(want, entry{id, ts + int64(90+n%13)})
			}
			if first == 0 {
				first = ts
			}
			if n%7 == 0 {
				time.Sleep(time.Second)
			}
		}
		w.Want(200, "document.hold.c."+want[3].ID, ``)
		want = slices.Delete(want, 3, 4)
		processortest.SleepUntil(first+30, 0)
		slices.SortFunc(want, func(a, b entry) int {
			return cmp.Or(cmp.Compare(a.Deadline, b.Deadline), strings.Compare(a.ID, b.ID))
		})
		page := func(query string) (documents []entry, cursor, plan string) {
			t.Helper()
			var reply struct {
				Documents []entry
				Cursor    string
				Plan      struct{ Index string }
			}
			w.Check(json.Unmarshal(w.Want(200, "query.c", query).Body, &reply))
			return reply.Documents, reply.Cursor, reply.Plan.Index
		}
		for _, limit := range []int{1, 7, 1000} {
			var got []entry
			for cursor := ""; ; {
				documents, next, plan := page(fmt.Sprintf(`{"due":{},"select":["/id"],"limit":%d,"cursor":%q,"explain":true}`, limit, cursor))
				got = append(got, documents...)
				if cursor = next; plan != "expiry" {
					t.Fatalf("the index is %q", plan)
				}
				if cursor == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("pages of %d:\n%v, want\n%v", limit, got, want)
			}
		}
		middle := want[len(want)/2].Deadline
		rfc3339 := func(second, ns int64) string { return time.Unix(second, ns).UTC().Format(time.RFC3339Nano) }
		from := slices.IndexFunc(want, func(e entry) bool { return e.Deadline >= middle })
		for query, part := range map[string][]entry{
			fmt.Sprintf(`{"due":{"until":%d}}`, middle):                             want[:from],
			fmt.Sprintf(`{"due":{"until":"%ds"}}`, middle-(first+30)):               want[:from],
			fmt.Sprintf(`{"due":{"from":%d}}`, middle):                              want[from:],
			fmt.Sprintf(`{"due":{"until":%q}}`, rfc3339(middle, 0)):                 want[:from],
			fmt.Sprintf(`{"due":{"from":%q}}`, rfc3339(middle-1, 1)):                want[from:],
			fmt.Sprintf(`{"due":{"from":%d,"until":%d}}`, want[0].Deadline, middle): want[:from],
			fmt.Sprintf(`{"due":{"from":%d,"until":%d}}`, middle, middle):           nil,
			`{"due":{},"held":true}`:                                                nil,
			`{"due":{"from":null},"where":"doc.id == 'd00'"}`:                       want[slices.IndexFunc(want, func(e entry) bool { return e.ID == "d00" }):][:1],
		} {
			if got, _, _ := page(query); !slices.Equal(got, part) {
				t.Errorf("%s:\n%v, want\n%v", query, got, part)
			}
			count := strings.Replace(query, "{", `{"count":true,`, 1)
			if got := string(w.Want(200, "query.c", count).Body); got != fmt.Sprintf(`{"count":%d}`, len(part)) {
				t.Errorf("%s: %s, want %d", count, got, len(part))
			}
		}
		for _, query := range []string{`{"due":5}`, `{"due":{"from":"x"}}`, `{"due":{"from":"2015-05-17T10:05:03+24:00"}}`, `{"due":{"until":1.5}}`, `{"due":{"to":1}}`,
			`{"due":{},"orderBy":[{"path":"/n"}]}`, `{"due":{"from":1,"from":2}}`} {
			w.Refused(400, "bad_request", "query.c", query)
		}
		_, cursor, _ := page(`{"due":{},"limit":1}`)
		w.Refused(400, "bad_query", "query.c", fmt.Sprintf(`{"due":{"from":1},"cursor":%q}`, cursor))
		w.Want(200, "collection.replace.c", `{}`)
		if got, _, _ := page(`{"due":{}}`); len(got) > 0 {
			t.Errorf("with TTL off there is %v", got)
		}
	})
}
