package processor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// queryReply is the reply to a query with explain.
type queryReply struct {
	Documents []struct {
		ID string `json:"id"`
	} `json:"documents"`
	Count *int `json:"count"`
	Plan  struct {
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
func (w *wire) query(collection, members string, headers ...string) (a queryReply) {
	w.t.Helper()
	w.check(json.Unmarshal(w.want(200, "query."+collection, `{"explain":true`+members+`}`, headers...).body, &a))
	return a
}

// TestQueryOnTheSecond: a document is found a millisecond before its deadline and not on
// it, in every mode and by every kind of plan, while the writer is too busy to expire.
func TestQueryOnTheSecond(t *testing.T) {
	inBubble(t, func(w *wire) {
		queries := []string{``, `,"where":"doc.n == 1"`, `,"where":"doc.n >= 0"`, `,"where":"doc.m == 1"`, `,"orderBy":[{"path":"/n","desc":true}]`, `,"orderBy":[{"path":"/m"}]`, `,"where":"1 in doc.l"`, `,"due":{}`}
		var ts int64
		for _, mode := range []string{"consistent", "lazy"} {
			w.want(201, "collection.create."+mode, `{"defaultTtl":10,"indexingPolicy":{"indexingMode":"`+mode+`","includedPaths":[{"path":"/n"},{"path":"/l"}]}}`)
			for _, id := range []string{"a", "b"} {
				ts = w.tsOf(w.want(201, "document.create."+mode+"."+id, `{"n":1,"m":1,"l":[1]}`))
			}
		}
		w.eventually("the lazy indexes have followed", func() bool {
			behind := w.query("lazy", `,"where":"doc.n == 1"`).Plan.Behind
			return behind != nil && *behind == 0
		})
		sleepUntil(ts+9, 999)
		release := w.holdWriter()
		defer release()
		for _, at := range []struct {
			ms   int
			want string
			n    int
		}{{9999, "a b", 2}, {10_000, "", 0}} {
			sleepUntil(ts, at.ms)
			for _, mode := range []string{"consistent", "lazy"} {
				for _, q := range queries {
					if a := w.query(mode, q); a.ids() != at.want {
						t.Errorf("%d ms, %s, {%s}: %q", at.ms, mode, q, a.ids())
					}
					if a := w.query(mode, q+`,"count":true`); a.Count == nil || *a.Count != at.n {
						t.Errorf("%d ms, %s, {%s}: count %v", at.ms, mode, q, a.Count)
					}
				}
			}
		}
	})
}

// TestQueryAfterWrite: the next query sees an acknowledged write. Lapse-Min-Seq waits for
// a sequence, or times out.
func TestQueryAfterWrite(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	w.want(201, "collection.create.c", `{"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
	for i := range 50 {
		w.want(200+min(1, (i+1)%2), "document.upsert.c.a", fmt.Sprintf(`{"n":%d}`, i))
		if a := w.query("c", fmt.Sprintf(`,"where":"doc.n == %d"`, i)); a.ids() != "a" || a.Plan.Index == nil {
			t.Fatalf("after write %d: %+v", i, a)
		}
		if i%2 == 1 {
			w.want(204, "document.delete.c.a", "")
			if a := w.query("c", `,"where":"doc.n >= 0"`); a.ids() != "" {
				t.Fatalf("after the delete: %+v", a)
			}
		}
	}
	r := w.want(201, "document.create.c.b", `{"n":-1}`)
	if a := w.query("c", `,"where":"doc.n < 0"`, "Lapse-Min-Seq", fmt.Sprint(r.seq)); a.ids() != "b" {
		t.Fatalf("%+v", a)
	}
	w.refused(504, "timeout", "query.c", `{}`, "Lapse-Min-Seq", fmt.Sprint(r.seq+1000))
}

// TestPathsChangeWhileServing: while the indexed paths of a filled collection and its
// documents change, in all modes, every count is right. In the end the index is used,
// even after a restart in between.
func TestPathsChangeWhileServing(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", `{"defaultTtl":-1}`)
	const documents = 3000
	for from := 0; from < documents; from += 500 {
		var operations []string
		for i := from; i < from+500; i++ {
			operations = append(operations, fmt.Sprintf(`{"op":"create","id":"d%04d","body":{"n":%d,"m":%d}}`, i, i%100, i%7))
		}
		w.want(200, "batch.c", `{"operations":[`+strings.Join(operations, ",")+`]}`)
	}
	moved := 0
	for i, policy := range []string{
		`"includedPaths":[{"path":"/n"}]`,
		`"includedPaths":[{"path":"/n"},{"path":"/m"}]`,
		`"indexingMode":"lazy","includedPaths":[{"path":"/n"}]`,
		`"includedPaths":[{"path":"/m"},{"path":"/n"}]`,
	} {
		w.want(200, "collection.replace.c", `{"defaultTtl":-1,"indexingPolicy":{`+policy+`}}`)
		lazy := strings.Contains(policy, "lazy")
		for asked := 0; ; asked++ {
			// Move another document from n == 5 to n == -1.
			if moved < documents/100 {
				w.want(200, fmt.Sprintf("document.replace.c.d%04d", moved*100+5), `{"n":-1}`)
				moved++
			}
			a := w.query("c", `,"where":"doc.n == 5","count":true`)
			used := a.Plan.Index != nil
			if *a.Count != documents/100-moved && !(lazy && used && *a.Count < documents/100) {
				t.Fatalf("policy %d, ask %d: %d documents, want %d: %+v", i, asked, *a.Count, documents/100-moved, a.Plan)
			}
			if used && len(a.Plan.Building) == 0 && (a.Plan.Behind == nil || *a.Plan.Behind == 0) {
				break
			}
			if asked == 3 && i == 1 {
				w.restart()
			}
			if asked > 100_000 {
				t.Fatalf("policy %d: the index is never used", i)
			}
		}
	}
	// Turning TTL on or off touches no index.
	for _, ttl := range []string{"null", "1000", "-1"} {
		w.want(200, "collection.replace.c", `{"defaultTtl":`+ttl+`,"indexingPolicy":{"includedPaths":[{"path":"/m"},{"path":"/n"}]}}`)
		if a := w.query("c", `,"where":"doc.n == 6","count":true`); a.Plan.Index == nil || a.Plan.Building != nil || *a.Count != documents/100 {
			t.Fatalf("defaultTtl %s: %d of %+v", ttl, *a.Count, a.Plan)
		}
	}
}

// TestLazyAfterWrite: with Lapse-Min-Seq the result is complete, however far lazy indexes
// are behind.
func TestLazyAfterWrite(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", `{"indexingPolicy":{"indexingMode":"lazy","includedPaths":[{"path":"/n"}]}}`)
	for i := range 50 {
		r := w.want(201, fmt.Sprintf("document.create.c.d%d", i), fmt.Sprintf(`{"n":%d}`, i))
		for _, q := range []string{fmt.Sprintf(`,"where":"doc.n == %d"`, i), `,"orderBy":[{"path":"/n","desc":true}],"limit":1`} {
			if a := w.query("c", q, "Lapse-Min-Seq", fmt.Sprint(r.seq)); a.ids() != fmt.Sprint("d", i) {
				t.Fatalf("{%s} finds %q: %+v", q, a.ids(), a.Plan)
			}
		}
	}
}

// TestQueryByID: ids need no index and no scan.
func TestQueryByID(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", ``)
	for _, id := range []string{"a", "b", "c", "d"} {
		w.want(201, "document.create.c."+id, `{}`)
	}
	for q, want := range map[string]string{
		`,"where":"doc.id == 'b'"`:                                               "b",
		`,"where":"doc.id == 'x' || doc.id == 'y'"`:                              "",
		`,"where":"doc.id in ['d', 'x', 'a', 'a', 7]"`:                           "a d",
		`,"where":"doc.id in ['a', params.gone]"`:                                "",
		`,"where":"doc.id in ['d', 'a'] && doc.id != 'a'"`:                       "d",
		`,"where":"doc.id in ['d', 'a']","orderBy":[{"path":"/id","desc":true}]`: "d a",
		`,"where":"doc.id == 7"`:                                                 "",
	} {
		if a := w.query("c", q); a.ids() != want || a.Plan.Index != nil || strings.Contains(q, "id in") && a.Plan.Scanned > 3 {
			t.Errorf("{%s}: %q, %+v", q, a.ids(), a.Plan)
		}
	}
	var page struct{ Cursor string }
	w.check(json.Unmarshal(w.want(200, "query.c", `{"where":"doc.id in ['a','b','d']","limit":2}`).body, &page))
	if r := w.want(200, "query.c", `{"where":"doc.id in ['a','b','d']","limit":2,"select":["/id"],"cursor":"`+page.Cursor+`"}`); string(r.body) != `{"documents":[{"id":"d"}]}` {
		t.Errorf("the second page is %s", r.body)
	}
}

// TestQueryQueueLimits: a query that waits for a worker gets a 504 at its time limit,
// and a 429 at once if the queue is full.
func TestQueryQueueLimits(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", ``)
		end := make(chan struct{})
		occupy(w.processor.service.Queries, 2, end)
		began := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.refused(504, "timeout", "query.c", `{}`)
		}()
		synctest.Wait()
		w.refused(429, "overloaded", "query.c", `{}`)
		<-done
		if waited := time.Since(began); waited != 3*time.Second {
			t.Errorf("it waited %v", waited)
		}
		close(end)
		synctest.Wait()
		w.want(200, "query.c", `{}`)
	}, func(o *Options) { o.QueryWorkers, o.QueryQueue, o.Query.Time = 1, 1, 3*time.Second })
}
