package processor

import (
	"strconv"
	"strings"
	"testing"
)

// lifetime is what the headers of a reply say about the document.
func (r wireReply) lifetime() [2]string {
	return [2]string{r.header.Get("Lapse-Deadline"), r.header.Get("Lapse-Rule")}
}

// TestDeadlineHeaders: each reply about one live document has its deadline and rule, by
// the TTL table, and no other reply has.
func TestDeadlineHeaders(t *testing.T) {
	inBubble(t, func(w *wire) {
		due := func(r wireReply, seconds int64, rule string) {
			t.Helper()
			want := [2]string{}
			if rule != "" {
				want = [2]string{strconv.FormatInt(w.tsOf(r)+seconds, 10), rule}
			}
			if got := r.lifetime(); got != want {
				t.Errorf("%s: %v, want %v", r, got, want)
			}
		}
		w.want(201, "collection.create.c", `{"defaultTtl":100}`)
		due(w.want(201, "document.create.c.a", `{}`), 100, "collection")
		due(w.want(200, "document.get.c.a", ``), 100, "collection")
		due(w.want(200, "document.replace.c.a", `{"ttl":30}`), 30, "document")
		due(w.want(200, "document.touch.c.a", ``), 30, "document")
		due(w.want(200, "document.patch.c.a", `{"ttl":-1}`), 0, "")
		due(w.want(200, "document.upsert.c.a", `{}`, "Nats-Msg-Id", "m"), 100, "collection")
		due(w.want(200, "document.upsert.c.a", `{}`, "Nats-Msg-Id", "m"), 100, "collection")
		due(w.want(201, "document.upsert.c.b", `{"ttl":7}`), 7, "document")
		due(w.want(200, "document.get.c.b", ``, "Lapse-Min-Seq", "1"), 7, "document")
		w.want(204, "document.delete.c.b", ``)
		due(w.want(201, "document.restore.c.b", ``), 7, "document")
		for _, tail := range []string{"collection.get.c", "query.c", "history.c.a", "status"} {
			if got := w.want(200, tail, ``).lifetime(); got != [2]string{} {
				t.Errorf("%s: %v", tail, got)
			}
		}
		if got := w.refused(409, "document_exists", "document.create.c.a", `{}`).lifetime(); got != [2]string{} {
			t.Errorf("an error has %v", got)
		}
		w.want(200, "collection.replace.c", `{"defaultTtl":50}`)
		due(w.want(200, "document.get.c.a", ``), 50, "collection")
		w.want(200, "collection.replace.c", `{}`)
		due(w.want(200, "document.get.c.a", ``), 0, "")
	})
}

// TestDeadlinesInQueries: _deadline is there on request, whatever select says, and gives
// way to no member of the content.
func TestDeadlinesInQueries(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", `{"defaultTtl":-1}`)
	ts := w.tsOf(w.want(201, "document.create.c.a", `{"n":1,"ttl":500,"_deadline":"mine"}`))
	w.want(201, "document.create.c.b", `{"n":2}`)
	for query, want := range map[string]string{
		`{"deadlines":true,"select":["/n"]}`:                            `{"documents":[{"n":1,"_deadline":D},{"n":2,"_deadline":null}]}`,
		`{"deadlines":true,"select":["/none"],"where":"doc.n==1"}`:      `{"documents":[{"_deadline":D}]}`,
		`{"deadlines":true,"select":["/_deadline","/id"],"limit":1000}`: `{"documents":[{"id":"a","_deadline":D},{"id":"b","_deadline":null}]}`,
		`{"deadlines":false,"select":["/_deadline"]}`:                   `{"documents":[{"_deadline":"mine"},{}]}`,
		`{"deadlines":true,"count":true}`:                               `{"count":2}`,
	} {
		got := strings.ReplaceAll(string(w.want(200, "query.c", query).body), strconv.FormatInt(ts+500, 10), "D")
		if got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	w.refused(400, "bad_request", "query.c", `{"deadlines":1}`)
}
