package projections

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// TestReadWhileFolding: readers see a fold as a whole or not at all, without a race.
// Each fold here creates two documents and ends two, one of each expiry order.
func TestReadWhileFolding(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":10}`)
	a, b := l.created("orders", "a", `{"id":"a","ttl":5}`), l.created("orders", "b", `{"id":"b"}`)
	catchUp(t, s, l)
	orders := collection(t, s, "orders")
	var readers sync.WaitGroup
	var reading atomic.Int64
	for range 3 {
		reading.Add(1)
		readers.Go(func() {
			defer reading.Add(-1)
			last := uint64(0)
			for range 200 {
				seq := s.Cursor().Seq
				if seq < last || seq%2 != 1 {
					t.Errorf("the cursor is at %d after %d", seq, last)
				}
				last = seq
				if err := s.Wait(t.Context(), seq); err != nil {
					t.Error(err)
				}
				n, err := s.Count(orders, 1007)
				if err != nil || n.Documents+n.Overdue != 2 || n.Pending+n.Overdue != 2 {
					t.Errorf("counted %+v (%v)", n, err)
				}
				r, ok, err := s.Document(orders, "a")
				if err != nil || !ok || uint64(r.Version) < seq-2 {
					t.Errorf("at %d or later a is %+v %t (%v)", seq, r, ok, err)
				}
				if lives, err := s.Lives("orders", "a", 5); err != nil || len(lives) == 0 {
					t.Errorf("a has lived %v (%v)", lives, err)
				}
				if len(s.Collections()) != 1 {
					t.Error("there is not one collection")
				}
				if _, _, err := s.Scan(Queue{1, ByTimestamp}, Entry{}, 1<<40, func(e Entry) bool { return e.ID == "b" }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := int64(0); reading.Load() > 0; i++ {
		l.now = 1000 + i%10
		l.document(schema.DocumentExpired, "orders", "a", a, "")
		a = l.created("orders", "a", `{"id":"a","ttl":5}`)
		l.document(schema.DocumentDeleted, "orders", "b", b, "")
		b = l.created("orders", "b", `{"id":"b"}`)
		catchUp(t, s, l)
	}
	readers.Wait()
	if s.Cursor().Seq == 3 {
		t.Error("nothing was folded meanwhile")
	}
}
