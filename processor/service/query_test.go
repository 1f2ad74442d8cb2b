package service_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
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

// query sends a query with explain; members are its other members.
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

// TestLazyAfterWrite: with Lapse-Min-Seq the result is complete, however far lazy indexes
// are behind. Without it, no deleted document is in a result.
func TestLazyAfterWrite(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", `{"indexingPolicy":{"indexingMode":"lazy","includedPaths":[{"path":"/n"}]}}`)
	for i := range 50 {
		r := w.Want(201, fmt.Sprintf("document.create.c.d%d", i), fmt.Sprintf(`{"n":%d}`, i))
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
}

// TestQueryByID: ids need no index and no scan.
func TestQueryByID(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", ``)
	for _, id := range []string{"a", "b", "c", "d"} {
		w.Want(201, "document.create.c."+id, `{}`)
	}
	for q, want := range map[string]string{
		`,"where":"doc.id == 'b'"`:                                               "b",
		`,"where":"doc.id == 'x' || doc.id == 'y'"`:                              "",
		`,"where":"doc.id in ['d', 'x', 'a', 'a', 7]"`:                           "a d",
		`,"where":"doc.id in ['a', params.gone] && !has(params.gone)"`:           "",
		`,"where":"doc.id in ['d', 'a'] && doc.id != 'a'"`:                       "d",
		`,"where":"doc.id in ['d', 'a']","orderBy":[{"path":"/id","desc":true}]`: "d a",
		`,"where":"doc.id == 7"`:                                                 "",
	} {
		if a := ask(w, "c", q); a.ids() != want || a.Plan.Index != nil || strings.Contains(q, "id in") && a.Plan.Scanned > 3 {
			t.Errorf("{%s}: %q, %+v", q, a.ids(), a.Plan)
		}
	}
}

// TestCursorAcrossRestarts: a cursor stays valid after a restart, after the projection is
// folded again, and with other indexes.
func TestCursorAcrossRestarts(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", `{"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
	for i := range 40 {
		w.Want(201, fmt.Sprintf("document.create.c.d%02d", i), fmt.Sprintf(`{"n":%d,"m":%d}`, i%7, i))
	}
	queries := []string{``, `,"where":"doc.n == 1"`, `,"where":"doc.n >= 1"`, `,"where":"doc.m <= params.most","params":{"most":15}`, `,"orderBy":[{"path":"/n","desc":true}]`,
		`,"where":"doc.n < 6","orderBy":[{"path":"/m","desc":true}]`, `,"where":"doc.id in ['d01','d02','d03','d04','d05','d06']"`}
	first, rest := make([]string, len(queries)), make([]string, len(queries))
	for i, q := range queries {
		page := ask(w, "c", q+`,"limit":4`)
		first[i], rest[i] = page.Cursor, ask(w, "c", q+`,"cursor":"`+page.Cursor+`"`).ids()
		if all := ask(w, "c", q).ids(); page.ids()+" "+rest[i] != all {
			t.Errorf("{%s}: %s, then %s, of %s", q, page.ids(), rest[i], all)
		}
	}
	index := func(policy string) func() {
		return func() {
			w.Want(200, "collection.replace.c", `{"indexingPolicy":`+policy+`}`)
			w.Eventually("the indexes are built", func() bool {
				p := ask(w, "c", `,"where":"doc.m >= 0","limit":1`).Plan
				return policy == `{}` || p.Index != nil && len(p.Building) == 0 && (p.Behind == nil || *p.Behind == 0)
			})
		}
	}
	for what, happen := range []func(){
		w.Restart,
		func() { w.Stop(); w.RemoveProjection(); w.Start() },
		index(`{}`),
		index(`{"includedPaths":[{"path":"/m"}]}`),
		index(`{"indexingMode":"lazy","includedPaths":[{"path":"/n"},{"path":"/m"}]}`),
	} {
		happen()
		for i, q := range queries {
			if got := ask(w, "c", q+`,"select":["/id","/n"],"cursor":"`+first[i]+`"`).ids(); got != rest[i] {
				t.Errorf("%d: %s follow the first page of {%s}, want %s", what, got, q, rest[i])
			}
		}
	}
}

// TestManyDocuments: a full page does not wait until all documents are scanned for another
// match: the next page may be empty. The log says when a new index is built.
func TestManyDocuments(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", `{}`)
	for range 2 {
		operations := strings.Repeat(`,{"op":"create","id":"%","body":{"n":1}}`, schema.MaxOperations)
		for i := range schema.MaxOperations {
			operations = strings.Replace(operations, "%", fmt.Sprint(w.End(), "-", i), 1)
		}
		w.Want(200, "batch.c", `{"operations":[`+operations[1:]+`]}`)
	}
	w.Want(201, "document.create.c.0", `{"n":0}`)
	page := ask(w, "c", `,"where":"doc.n == 0","limit":1`)
	if rest := ask(w, "c", `,"where":"doc.n == 0","limit":1,"cursor":"`+page.Cursor+`"`); page.ids() != "0" || page.Plan.Scanned > schema.MaxOperations+100 || rest.ids() != "" || rest.Cursor != "" {
		t.Errorf("%+v, and then %+v", page, rest)
	}
	w.Want(200, "collection.replace.c", `{"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
	w.Eventually("the index is built", func() bool { return strings.Contains(w.Logs.String(), "indexes built") })
	if a := ask(w, "c", `,"where":"doc.n == 0","limit":1`); a.ids() != "0" || a.Plan.Index == nil {
		t.Errorf("%+v", a)
	}
}

// TestLargeDocuments: documents that do not fit one reply together come on several pages,
// in every order; with select on one.
func TestLargeDocuments(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", `{"defaultTtl":1000,"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
	for i, id := range []string{"a", "b", "c"} {
		w.Want(201, "document.create.c."+id, fmt.Sprintf(`{"n":%d,"m":%d,"text":%q}`, i, i, strings.Repeat("x", 1_900_000)))
		w.Want(200, "document.hold.c."+id, `{}`)
	}
	for _, q := range []string{``, `,"where":"doc.n >= 0"`, `,"orderBy":[{"path":"/n"}]`, `,"orderBy":[{"path":"/m"}]`, `,"held":true`, `,"due":{}`} {
		if strings.Contains(q, "due") {
			for _, id := range []string{"a", "b", "c"} {
				w.Want(200, "document.release.c."+id, ``)
			}
		}
		first := ask(w, "c", q)
		if first.ids() != "a b" || first.Cursor == "" {
			t.Errorf("{%s}: %s, cursor %q", q, first.ids(), first.Cursor)
			continue
		}
		if rest := ask(w, "c", q+`,"cursor":"`+first.Cursor+`"`); rest.ids() != "c" || rest.Cursor != "" {
			t.Errorf("{%s}: then %s, cursor %q", q, rest.ids(), rest.Cursor)
		}
		if all := ask(w, "c", q+`,"select":["/id"]`); all.ids() != "a b c" || all.Cursor != "" {
			t.Errorf("{%s}: %s with select, cursor %q", q, all.ids(), all.Cursor)
		}
	}
}
