package service_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/processor/processortest"
)

// queryReply is the reply to a query with explain.
type queryReply struct {
	Documents []struct {
		ID string `json:"id"`
	} `json:"documents"`
	Cursor string `json:"cursor"`
	Count  *int   `json:"count"`
	Plan   struct {
		Index    *string  `json:"index"`
		Scanned  int      `json:"scanned"`
		Behind   *uint64  `json:"behind"`
		Building []string `json:"building"`
	} `json:"plan"`
}

func (a queryReply) ids() string {
	var ids []string
	for _, d := range a.Documents {
		ids = append(ids, d.ID)
	}
	return strings.Join(ids, " ")
}

// ask sends a query with explain; members are its other members.
func ask(w *processortest.Wire, collection, members string, headers ...string) (a queryReply) {
	w.T.Helper()
	w.Check(json.Unmarshal(w.Want(200, "query."+collection, `{"explain":true`+members+`}`, headers...).Body, &a))
	return a
}

// TestQueryOnTheSecond: a document is found a millisecond before its deadline and not on
// it, in every mode and by every kind of plan, while the writer is too busy to expire.
func TestQueryOnTheSecond(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		queries := []string{``, `,"where":"doc.n == 1"`, `,"where":"doc.n >= 0"`, `,"where":"doc.m == 1"`, `,"orderBy":[{"path":"/n","desc":true}]`, `,"orderBy":[{"path":"/m"}]`, `,"where":"1 in doc.l"`, `,"due":{}`}
		var ts int64
		for _, mode := range []string{"consistent", "lazy"} {
			w.Want(201, "collection.create."+mode, `{"defaultTtl":10,"indexingPolicy":{"indexingMode":"`+mode+`","includedPaths":[{"path":"/n"},{"path":"/l"}]}}`)
			for _, id := range []string{"a", "b"} {
				ts = w.TS(w.Want(201, "document.create."+mode+"."+id, `{"n":1,"m":1,"l":[1]}`))
			}
		}
		w.Eventually("the lazy indexes have followed", func() bool {
			behind := ask(w, "lazy", `,"where":"doc.n == 1"`).Plan.Behind
			return behind != nil && *behind == 0
		})
		processortest.SleepUntil(ts+9, 999)
		release := w.HoldWriter()
		defer release()
		for _, at := range []struct {
			ms   int
			want string
			n    int
		}{{9999, "a b", 2}, {10_000, "", 0}} {
			processortest.SleepUntil(ts, at.ms)
			for _, mode := range []string{"consistent", "lazy"} {
				for _, q := range queries {
					if a := ask(w, mode, q); a.ids() != at.want {
						t.Errorf("%d ms, %s, {%s}: %q", at.ms, mode, q, a.ids())
					}
					if a := ask(w, mode, q+`,"count":true`); a.Count == nil || *a.Count != at.n {
						t.Errorf("%d ms, %s, {%s}: count %v", at.ms, mode, q, a.Count)
					}
				}
			}
		}
	})
}

// TestLazyAfterWrite: with Lapse-Min-Seq a write is read, and the result of a query is complete, however far lazy indexes
// are behind. Without it, no deleted document is in a result.
func TestLazyAfterWrite(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", `{"indexingPolicy":{"indexingMode":"lazy","includedPaths":[{"path":"/n"}]}}`)
	for i := range 50 {
		r := w.Want(201, fmt.Sprintf("document.create.c.d%d", i), fmt.Sprintf(`{"n":%d}`, i))
		if got := w.Want(200, fmt.Sprint("document.get.c.d", i), "", "Lapse-Min-Seq", fmt.Sprint(r.Seq)); string(got.Body) != string(r.Body) {
			t.Fatalf("wrote %s and read %s", r.Body, got.Body)
		}
		for _, q := range []string{fmt.Sprintf(`,"where":"doc.n == %d"`, i), `,"orderBy":[{"path":"/n","desc":true}],"limit":1`} {
			if a := ask(w, "c", q, "Lapse-Min-Seq", fmt.Sprint(r.Seq)); a.ids() != fmt.Sprint("d", i) {
				t.Fatalf("{%s} finds %q: %+v", q, a.ids(), a.Plan)
			}
		}
		w.Want(201, "document.create.c.gone", `{"n":-1}`)
		w.Want(204, "document.delete.c.gone", "")
		if a := ask(w, "c", `,"where":"doc.n == -1"`); a.ids() != "" {
			t.Fatalf("a deleted document is found: %+v", a)
		}
	}
	// More documents than are indexed at once.
	w.Want(200, "batch.c", listed(`{"operations":[%s]}`, func(i int) string { return fmt.Sprintf(`{"op":"create","id":"%d","body":{}}`, i) })(600))
	w.Want(200, "collection.replace.c", `{"indexingPolicy":{"includedPaths":[{"path":"/m"}]}}`)
	w.Eventually("the log says that an index is built", func() bool { return strings.Contains(w.Logs.String(), "indexes built") })
}
