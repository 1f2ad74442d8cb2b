package machine

import (
	"fmt"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// fresh returns a machine with an empty collection orders whose documents live
// ten seconds, at second 1000.
func fresh(t *testing.T) *Machine {
	t.Helper()
	store, err := projections.Open("projection", projections.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20, MemTableBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	m, err := NewMachine(store)
	if err != nil {
		t.Fatal(err)
	}
	decideNow(t, m, 1000, schema.NewNamedMutation("collection.create", "orders", "", []byte(`{"defaultTtl":10}`)))
	return m
}

// decideNow decides a mutation, as often as it has to be decided again, and commits all
// events. It returns them.
func decideNow(t *testing.T, m *Machine, second int64, mu *schema.Mutation) (o Outcome, events []*schema.Event) {
	t.Helper()
	for again := true; again; {
		var err error
		if o, err = m.Decide(second*1000, mu); err != nil {
			t.Fatal(err)
		}
		for _, fact := range m.Take() {
			events = append(events, fact.Event)
		}
		if err := m.Commit(m.Seq()); err != nil {
			t.Fatal(err)
		}
		again = o.Need == NeedCommit
	}
	return o, events
}

// TestPolicyChangeWithManyDue: when more documents are due than one decision expires, a
// change of policy waits until all have expired, in steps that the log can accept.
func TestPolicyChangeWithManyDue(t *testing.T) {
	const documents = 2*sweepAtOnce + 10
	for _, op := range []string{"collection.replace", "collection.delete"} {
		m := fresh(t)
		for i := range documents {
			body := `{}`
			if i%2 == 0 {
				body = `{"ttl":9}`
			}
			if _, err := m.Decide(1000_000, schema.NewNamedMutation("document.create", "orders", fmt.Sprint(i), []byte(body))); err != nil {
				t.Fatal(err)
			}
		}
		m.Take()
		if err := m.Commit(m.Seq()); err != nil {
			t.Fatal(err)
		}
		o, events := decideNow(t, m, 1010, schema.NewNamedMutation(op, "orders", "", nil))
		if o.Fault != nil || len(events) != documents+1 {
			t.Fatalf("%s: %d events (%v)", op, len(events), o.Fault)
		}
		for i, e := range events {
			if (e.Type == schema.DocumentExpired) != (i < documents) {
				t.Fatalf("%s: event %d of %d is %s", op, i, len(events), e.Type)
			}
		}
		if more, err := m.Expire(1010_000, 1); more || err != nil || m.Pending() != 0 {
			t.Errorf("%s: and then %d are left (%v)", op, m.Pending(), err)
		}
	}
}

// TestAbandonedPolicyChangeExpiresRest: if the change is given up half way, the rest still expires.
func TestAbandonedPolicyChangeExpiresRest(t *testing.T) {
	m := fresh(t)
	for i := range sweepAtOnce + 10 {
		if _, err := m.Decide(1000_000, schema.NewNamedMutation("document.create", "orders", fmt.Sprint(i), []byte(`{}`))); err != nil {
			t.Fatal(err)
		}
	}
	m.Take()
	if err := m.Commit(m.Seq()); err != nil {
		t.Fatal(err)
	}
	if o, err := m.Decide(1010_000, schema.NewNamedMutation("collection.replace", "orders", "", nil)); o.Need != NeedCommit || m.Pending() != sweepAtOnce || err != nil {
		t.Fatalf("decided %+v with %d pending (%v)", o, m.Pending(), err)
	}
	if second, ok := m.NextDue(); !ok || second > 1010 {
		t.Errorf("the rest is due at %d %t", second, ok)
	}
	if more, err := m.Expire(1010_000, 1000); more || err != nil || m.Pending() != sweepAtOnce+10 {
		t.Errorf("%d are pending (%v)", m.Pending(), err)
	}
}

// TestPanicChangesNothing: a panic while deciding fails only that mutation and changes
// nothing.
func TestPanicChangesNothing(t *testing.T) {
	m := fresh(t)
	_, _ = decideNow(t, m, 1000, schema.NewNamedMutation("document.create", "orders", "a", []byte(`{}`)))
	poison := &schema.Mutation{Op: schema.DocumentUpsert, Collection: "orders", ID: "a", MsgID: "m"} // Check was not called: no document
	before := m.Seq()
	o, err := m.Decide(1010_000, poison)
	if err != nil || o.Code != 503 || m.Pending() != 0 || m.Seq() != before {
		t.Fatalf("%+v and %d pending at %d (%v)", o, m.Pending(), m.Seq(), err)
	}
	b := &schema.Batch{Collection: "orders", Atomic: true, Operations: []schema.Operation{
		{Mutation: schema.NewNamedMutation("document.upsert", "orders", "b", []byte(`{}`))}, {Mutation: poison}}}
	o, err = m.DecideBatch(1005_000, NewBatchRun(b, 1<<20), math.MaxInt)
	if err != nil || m.Pending() != 0 {
		t.Fatalf("%s and %d pending (%v)", o.Body, m.Pending(), err)
	}
	o, events := decideNow(t, m, 1009, schema.NewNamedMutation("document.replace", "orders", "a", []byte(`{"n":1}`)))
	if o.Code != 200 || len(events) != 1 || events[0].Seq != before+1 {
		t.Errorf("then %+v, %v", o, events)
	}
	poison.Recorded, poison.Cause = true, 1
	if _, events := decideNow(t, m, 1010, poison); len(events) != 1 || events[0].Type != schema.MutationRejected {
		t.Errorf("from the stream comes %v", events)
	}
}

// TestTooManyCollections: the number of collections is limited, by request and by
// message, pending ones included; a deletion makes room for another.
func TestTooManyCollections(t *testing.T) {
	m := fresh(t) // has one collection
	there := len(m.Store.Collections())
	decide := func(op, name string, code int) {
		t.Helper()
		mu := schema.NewNamedMutation(op, name, "", nil)
		o, err := m.Decide(1000_000, mu)
		if err != nil || o.Code != code {
			t.Fatalf("%s %s: %d %v, %v", op, name, o.Code, o.Fault, err)
		}
	}
	commit := func() {
		t.Helper()
		m.Take()
		if err := m.Commit(m.Seq()); err != nil {
			t.Fatal(err)
		}
	}
	for n := range MaxCollections - there {
		decide("collection.create", fmt.Sprint("c", n), 201)
		if n%1000 == 0 {
			commit()
		}
	}
	decide("collection.create", "more", 413)
	decide("collection.create", "c1", 409)
	commit()
	decide("collection.create", "more", 413)
	decide("collection.replace", "c1", 200)
	commit()
	decide("collection.delete", "c1", 204)
	decide("collection.create", "more", 201)
	decide("collection.create", "c1", 413)
	commit()
	if err := m.restart(); err != nil {
		t.Fatal(err)
	}
	rejected := schema.NewNamedMutation("collection.create", "c1", "", nil)
	rejected.Recorded, rejected.Cause = true, 1
	o, err := m.Decide(1000_000, rejected)
	if events := m.Take(); err != nil || o.Code != 413 || len(events) != 1 || events[0].Type != schema.MutationRejected {
		t.Errorf("by message: %+v, %v, %d events", o, err, len(events))
	}
}

// visits counts the entries that scans visit.
type visits struct {
	Projection
	entries int
}

func (v *visits) Scan(q projections.Queue, after projections.Entry, last int64, visit func(projections.Entry) bool) (int64, bool, error) {
	return v.Projection.Scan(q, after, last, func(e projections.Entry) bool {
		v.entries++
		return visit(e)
	})
}

// warnAll emits all warnings that are due, and returns how many.
func warnAll(t *testing.T, m *Machine, second int64) (warned int) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = m.Expire(second*1000, 256); err != nil {
			t.Fatal(err)
		}
		warned += len(m.Take())
		if err := m.Commit(m.Seq()); err != nil {
			t.Fatal(err)
		}
	}
	return warned
}

// writeAll writes the documents from one number up to another, and folds them at once.
func writeAll(t *testing.T, m *Machine, second int64, from, to int, body string) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := m.Decide(second*1000, schema.NewNamedMutation("document.upsert", "orders", fmt.Sprint(i), []byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	m.Take()
	if err := m.Commit(m.Seq()); err != nil {
		t.Fatal(err)
	}
}

// warned returns a machine with so many documents, all warned of at second 1500, and a count
// of the entries that it visits from then on.
func warned(t *testing.T, documents int) (*Machine, *visits) {
	t.Helper()
	m := fresh(t)
	decideNow(t, m, 1000, schema.NewNamedMutation("collection.replace", "orders", "", []byte(`{"defaultTtl":10000,"warnBefore":9000}`)))
	writeAll(t, m, 1000, 0, documents, `{"ttl":9500}`)
	if n := warnAll(t, m, 1500); n != documents {
		t.Fatalf("%d warnings of %d documents", n, documents)
	}
	counted := &visits{Projection: m.Store}
	m.Store = counted
	return m, counted
}

// TestLateWarningsSkipQueueWalk: warnings that are due right after the write cost no walk over the
// entries warned of before, even if there are more than late can list.
func TestLateWarningsSkipQueueWalk(t *testing.T) {
	const waiting = 5000
	m, counted := warned(t, waiting)
	for i := range 50 {
		writeAll(t, m, 1500, waiting+i, waiting+i+1, `{"ttl":50}`)
		if n := warnAll(t, m, 1500); n != 1 {
			t.Fatalf("%d warnings of a document with little time left", n)
		}
	}
	if counted.entries > 50 {
		t.Errorf("50 warnings visited %d entries", counted.entries)
	}
	writeAll(t, m, 1500, waiting, waiting+mostLate+100, `{"ttl":60}`)
	if n := warnAll(t, m, 1500); n != mostLate+100 {
		t.Errorf("%d warnings of %d documents at once", n, mostLate+100)
	}
}

// TestLateWarningsShareQueueWalk: where late overflows again and again, a walk of the whole
// queue costs the late entries since the walk before a bounded number of visits each.
func TestLateWarningsShareQueueWalk(t *testing.T) {
	const waiting = 4000
	for _, round := range []int{20, 300} {
		m, counted := warned(t, waiting)
		m.sweep.mostLate = 10
		total := 0
		for range 30 {
			writeAll(t, m, 1500, waiting, waiting+round, `{"ttl":50}`)
			if n := warnAll(t, m, 1500); n != round {
				t.Fatalf("%d warnings of %d documents with little time left", n, round)
			}
			total += round
		}
		if counted.entries > waiting+(skipsPerEvent+1)*total {
			t.Errorf("%d warnings, %d at a time, visited %d entries", total, round, counted.entries)
		}
	}
}

// TestWalksDoNotOverlap: while all documents are renewed before they expire, each walk
// begins where the last one ended, not at the deadlines that are long gone.
func TestWalksDoNotOverlap(t *testing.T) {
	m := fresh(t)
	const from, seconds = 1000, 200
	spans := &spans{Projection: m.Store, from: from}
	m.Store = spans
	for second := int64(from); second < from+seconds; second++ {
		if n := warnAll(t, m, second); n > 0 {
			t.Fatalf("%d documents expired", n)
		}
		if second%5 == 0 {
			writeAll(t, m, second, 0, 3, `{}`)
			writeAll(t, m, second, 3, 6, `{"ttl":8}`)
		}
	}
	if spans.walks < 20 || spans.seconds > 2*seconds {
		t.Errorf("%d walks through %d seconds covered %d", spans.walks, seconds, spans.seconds)
	}
}

// spans sums up the seconds between the positions and the ends of walks.
type spans struct {
	Projection
	from    int64 // the first second with entries
	walks   int
	seconds int64
}

func (s *spans) Scan(q projections.Queue, after projections.Entry, last int64, visit func(projections.Entry) bool) (int64, bool, error) {
	s.walks++
	s.seconds += max(0, last-max(after.Second, s.from))
	return s.Projection.Scan(q, after, last, visit)
}
