package processor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// tsOf returns the _ts of the document in a reply.
func (w *wire) tsOf(r wireReply) int64 {
	w.t.Helper()
	var document struct {
		TS int64 `json:"_ts"`
	}
	w.check(json.Unmarshal(r.body, &document))
	return document.TS
}

// summary returns the types, and ids, of the events after a sequence.
func (w *wire) summary(after uint64) string {
	w.t.Helper()
	var words []string
	for _, e := range w.events() {
		if e.Seq <= after {
			continue
		}
		word := e.Type.String()
		if e.Type.OnDocument() {
			word += "(" + string(e.ID) + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func (w *wire) wantSummary(after uint64, want string) {
	w.t.Helper()
	if got := w.summary(after); got != want {
		w.t.Fatalf("the log says\n%s, want\n%s", got, want)
	}
}

// TestTTLTable: each cell of the TTL table in section 2 of the contract holds, a millisecond
// before the deadline and on it.
func TestTTLTable(t *testing.T) {
	inBubble(t, func(w *wire) {
		type cell struct {
			collection, id string
			after          int64 // seconds, 0 for never
			rule           schema.Rule
		}
		var cells []cell
		for _, c := range []struct {
			name, properties              string
			absent, never, document, null int64
			absentRule, documentRule      schema.Rule
		}{
			{"off", `{}`, 0, 0, 0, 0, 0, 0},
			{"null", `{"defaultTtl":null}`, 0, 0, 0, 0, 0, 0},
			{"none", `{"defaultTtl":-1}`, 0, 0, 7, 0, 0, schema.RuleDocument},
			{"five", `{"defaultTtl":5}`, 5, 0, 7, 5, schema.RuleCollection, schema.RuleDocument},
			{"hundred", `{"defaultTtl":100.0}`, 100, 0, 7, 100, schema.RuleCollection, schema.RuleDocument},
		} {
			w.want(201, "collection.create."+c.name, c.properties)
			cells = append(cells,
				cell{c.name, "absent", c.absent, c.absentRule}, cell{c.name, "null", c.null, c.absentRule},
				cell{c.name, "never", c.never, 0}, cell{c.name, "document", c.document, c.documentRule})
		}
		time.Sleep(600 * time.Millisecond) // _ts is rounded down
		bodies := map[string]string{"absent": `{}`, "null": `{"ttl":null}`, "never": `{"ttl":-1}`, "document": `{"ttl":7}`}
		var ts int64
		for _, c := range cells {
			ts = w.tsOf(w.want(201, "document.create."+c.collection+"."+c.id, bodies[c.id]))
		}
		for _, at := range []int64{5, 7, 100, 200} {
			for _, ms := range []int{-1, 0} {
				sleepUntil(ts+at, ms)
				for _, c := range cells {
					want := 200
					if c.after != 0 && (c.after < at || c.after == at && ms == 0) {
						want = 404
					}
					w.want(want, "document.get."+c.collection+"."+c.id, "")
				}
			}
		}
		var want []cell
		for _, c := range cells {
			if c.after != 0 {
				want = append(want, c)
			}
		}
		slices.SortStableFunc(want, func(a, b cell) int { return int(a.after - b.after) })
		var got []cell
		for _, e := range w.events() {
			if e.Type == schema.DocumentExpired {
				got = append(got, cell{string(e.Collection), string(e.ID), int64(e.Deadline.TTL), e.Deadline.Rule})
				if e.Time != e.Deadline.At*1000 || e.Deadline.At != ts+int64(e.Deadline.TTL) {
					t.Errorf("expired at %d: %+v", e.Time, e)
				}
			}
		}
		order := func(a, b cell) int {
			return strings.Compare(fmt.Sprintf("%09d%v", a.after, a), fmt.Sprintf("%09d%v", b.after, b))
		}
		slices.SortFunc(got, order)
		slices.SortFunc(want, order)
		if !slices.Equal(got, want) {
			t.Errorf("expired\n%v, want\n%v", got, want)
		}
	})
}

// TestExpiredForEveryRequest: a document does not exist from its deadline on, even while
// the writer is too busy to expire it.
func TestExpiredForEveryRequest(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{"defaultTtl":10}`)
		ids := []string{"get", "create", "upsert", "replace", "patch", "delete", "batch"}
		var ts int64
		for _, id := range ids {
			ts = w.tsOf(w.want(201, "document.create.c."+id, `{}`))
		}
		before := w.end()
		sleepUntil(ts+9, 999)
		release := w.holdWriter()
		defer release()
		sleepUntil(ts+10, 0)
		w.want(404, "document.get.c.get", "")
		r := w.want(200, "batch.c", `{"operations":[{"op":"get","id":"get"},{"op":"get","id":"batch"}]}`)
		if n := strings.Count(string(r.body), `"code":404,"error"`); n != 2 {
			t.Errorf("the batch reads %s", r.body)
		}
		if r := w.want(200, "collection.get.c", ""); !strings.Contains(string(r.body), `"documents":0,"bytes":0`) {
			t.Errorf("the collection is %s", r.body)
		}
		var s schema.Status
		w.check(json.Unmarshal(w.want(200, "status", "").body, &s))
		if s.Documents != 0 || s.PendingExpiry != 0 || s.Overdue != 7 {
			t.Errorf("the status is %+v", s)
		}
		if w.end() != before {
			t.Error("something was logged while the writer was held")
		}
		// Requests sent now are decided before the sweep has its turn.
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.want(201, "document.create.c.create", `{}`)
			w.want(201, "document.upsert.c.upsert", `{}`)
			w.want(404, "document.replace.c.replace", `{}`)
			w.want(404, "document.patch.c.patch", `{}`)
			w.want(404, "document.delete.c.delete", "")
			w.want(200, "batch.c", `{"operations":[{"op":"delete","id":"batch"},{"op":"create","id":"batch","body":{}}]}`)
		}()
		synctest.Wait()
		release()
		<-done
		time.Sleep(time.Second)
		for _, id := range ids {
			var story []string
			for _, e := range w.events() {
				if string(e.ID) == id {
					story = append(story, e.Type.String())
				}
			}
			want := "DocumentCreated DocumentExpired"
			if id == "create" || id == "upsert" || id == "batch" {
				want += " DocumentCreated"
			}
			if got := strings.Join(story, " "); got != want {
				t.Errorf("%s: %s, want %s", id, got, want)
			}
		}
	})
}

// TestMinSeq: a request waits for a sequence, for two seconds at most.
func TestMinSeq(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{}`)
		now := w.end()
		for _, test := range []struct {
			name, seq string
			code      int
			error     string
		}{
			{"past", "1", 200, ""},
			{"zero", "0", 200, ""},
			{"now", fmt.Sprint(now), 200, ""},
			{"to come", fmt.Sprint(now + 1), 504, "timeout"},
			{"never", fmt.Sprint(uint64(1<<64 - 1)), 504, "timeout"},
			{"no number", "x", 400, "bad_request"},
			{"negative", "-1", 400, "bad_request"},
			{"a fraction", "1.5", 400, "bad_request"},
			{"too large", "18446744073709551616", 400, "bad_request"},
			{"many digits", strings.Repeat("9", 100_000), 400, "bad_request"},
			{"zeros", strings.Repeat("0", 1000) + "1", 200, ""},
			{"a blank", " 1", 200, ""},
			{"nothing", "", 400, "bad_request"},
			{"a plus", "+1", 400, "bad_request"},
			{"an exponent", "1e0", 400, "bad_request"},
			{"hexadecimal", "0x1", 400, "bad_request"},
			{"grouped", "1_0", 400, "bad_request"},
			{"not ASCII", "٣", 400, "bad_request"},
		} {
			for _, tail := range []string{"collection.get.c", "collection.list", "status", "batch.c", "document.upsert.c.a"} {
				if test.code == 200 && tail == "document.upsert.c.a" {
					continue
				}
				began := time.Now()
				r := w.ask(tail, map[string]string{"batch.c": `{"operations":[]}`, "document.upsert.c.a": `{}`}[tail], "Lapse-Min-Seq", test.seq)
				if r.code != test.code || r.error != test.error {
					t.Errorf("%s: %s came out with %s", test.name, tail, r)
				}
				if waited := time.Since(began); (waited >= 2*time.Second) != (test.code == 504) || waited > 2*time.Second+10*time.Millisecond {
					t.Errorf("%s: %s took %s", test.name, tail, waited)
				}
			}
		}
		if w.end() != now {
			t.Fatal("a request that timed out changed something")
		}
		answered := make(chan wireReply)
		go func() { answered <- w.ask("document.get.c.a", "", "Lapse-Min-Seq", fmt.Sprint(now+1)) }()
		time.Sleep(time.Second)
		w.want(201, "document.create.c.a", `{}`)
		began := time.Now()
		if r := <-answered; r.code != 200 || r.seq < now+1 || time.Since(began) > 0 {
			t.Errorf("%s after %s more", r, time.Since(began))
		}
	})
}

// TestBatchAfterPolicyChange: a batch waits for a change of its collection that was there
// before it.
func TestBatchAfterPolicyChange(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{}`)
		before := w.end()
		release := w.holdWriter()
		var asked sync.WaitGroup
		for _, one := range [][2]string{{"document.create.c.a", `{}`}, {"collection.replace.c", `{"defaultTtl":5}`}, {"batch.c", `{"operations":[{"op":"create","id":"b","body":{}}]}`}} {
			asked.Go(func() {
				if r := w.ask(one[0], one[1]); r.code >= 300 {
					t.Errorf("%s: %s", one[0], r)
				}
			})
			synctest.Wait()
		}
		release()
		asked.Wait()
		w.wantSummary(before, "DocumentCreated(a) CollectionReplaced DocumentCreated(b)")
	})
}

// TestPolicyChangeDoesNotWaitForOthers: however much is due, a change of policy, which
// all other mutations wait for, is decided as soon as nothing is pending.
func TestPolicyChangeDoesNotWaitForOthers(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.sessions", `{"defaultTtl":60}`)
		w.want(201, "collection.create.orders", `{}`)
		sleepUntil(time.Now().Unix()+1, 100)
		const documents = 5 * 1024
		for done := 0; done < documents; done += schema.MaxOperations {
			var operations []string
			for i := range min(schema.MaxOperations, documents-done) {
				operations = append(operations, fmt.Sprintf(`{"op":"create","id":"%d","body":{}}`, done+i))
			}
			w.want(200, "batch.sessions", fmt.Sprintf(`{"operations":[%s]}`, strings.Join(operations, ",")))
		}
		release := w.holdWriter()
		w.check(w.client.PublishRequest("lapse.main.api.collection.replace.orders", w.client.NewInbox(), []byte(`{"previousImages":false}`)))
		time.Sleep(2 * time.Minute)
		release()
		w.eventually("all expired", func() bool { return w.end() >= documents+documents+3 })
		time.Sleep(time.Second)
		expired := 0
		for _, e := range w.events() {
			switch e.Type {
			case schema.DocumentExpired:
				expired++
			case schema.CollectionReplaced:
				if expired > documents/2 {
					t.Errorf("the policy changed after %d of %d expiries", expired, documents)
				}
				return
			}
		}
		t.Error("the policy did not change")
	})
}
