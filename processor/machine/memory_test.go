package machine

import (
	"fmt"
	"testing"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
	"github.com/lapsedb/lapse/test/versus"
)

// waiting is a machine with documents that wait for their deadline, without NATS. Its
// projection is on disk, with caches too small to hide the machine's own memory, or to be
// mistaken for it.
type waiting struct {
	tb          testing.TB
	dir         string
	store       *projections.Store
	machine     *Machine
	collections int
	cache       int64
	documents   int
	empty       int64 // heap without documents
}

func startWaiting(tb testing.TB, collections int, cache int64) *waiting {
	tb.Helper()
	w := &waiting{tb: tb, dir: tb.TempDir(), collections: collections, cache: cache}
	tb.Cleanup(func() {
		if err := w.store.Close(); err != nil {
			tb.Error(err)
		}
	})
	w.open()
	for i := range collections {
		w.decide(0, "collection.create."+w.collection(i), `{"defaultTtl":86400}`)
	}
	w.fold()
	w.empty = stress.Heap()
	return w
}

func (w *waiting) open() {
	var err error
	w.store, err = projections.Open(w.dir, projections.Options{CacheBytes: w.cache, MemTableBytes: 4 << 20})
	if err != nil {
		w.tb.Fatal(err)
	}
	w.start()
}

func (w *waiting) start() {
	var err error
	if w.machine, err = NewMachine(w.store); err != nil {
		w.tb.Fatal(err)
	}
}

func (w *waiting) collection(i int) string { return fmt.Sprintf("c%d", i%w.collections) }

func (w *waiting) decide(now int64, tail, body string) {
	o, err := w.machine.Decide(now, schema.NewMutation(tail, []byte(body)))
	if err != nil || o.Fault != nil {
		w.tb.Fatal(tail, o.Fault, err)
	}
	if w.machine.Pending() >= 1024 {
		w.fold()
	}
}

func (w *waiting) fold() {
	w.machine.Take()
	if err := w.machine.Commit(w.machine.Seq()); err != nil {
		w.tb.Fatal(err)
	}
}

// fill stores documents, half of them with a ttl of their own, so that they wait in both
// queues of every collection and for a thousand different seconds.
func (w *waiting) fill(documents int) {
	for n := w.documents; n < w.documents+documents; n++ {
		ttl := ""
		if n/w.collections%2 == 0 {
			ttl = fmt.Sprintf(`"ttl":%d,`, 3600+n%997)
		}
		w.decide(int64(n), "document.create."+w.collection(n)+"."+versus.ID(n), string(versus.DocumentWith(n, ttl)))
	}
	w.documents += documents
	w.fold()
}

// cost is the growth of the heap by all documents, in bytes: live after they were stored,
// restarted after a restart; machine is the machine's share of restarted, the rest is
// Pebble's.
type cost struct{ live, restarted, machine int64 }

// cost stores documents and measures.
func (w *waiting) cost(documents int) (c cost) {
	w.fill(documents)
	stress.Settle()
	c.live = stress.Heap() - w.empty
	w.machine = nil
	if err := w.store.Close(); err != nil {
		w.tb.Fatal(err)
	}
	w.open()
	stress.Settle()
	all := stress.Heap()
	c.restarted = all - w.empty
	w.machine = nil
	c.machine = all - stress.Heap()
	w.start()
	return c
}

// BenchmarkMillionPending reports the heap growth by a million documents that wait for
// their deadline, in 1,000 collections, in MiB, and that by each of as many more, in
// bytes: by then the caches, whose size is fixed, are full.
func BenchmarkMillionPending(b *testing.B) {
	const collections, mib = 1_000, 1 << 20
	documents := versus.Size(1_000_000, 100_000)
	var first, second cost
	for b.Loop() {
		w := startWaiting(b, collections, 32<<20)
		first, second = w.cost(documents), w.cost(documents)
	}
	growth := float64(max(second.live-first.live, second.restarted-first.restarted, 0)) / float64(documents)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(first.live)/mib, "live-MiB")
	b.ReportMetric(float64(first.restarted)/mib, "restarted-MiB")
	b.ReportMetric(float64(first.machine)/mib, "machine-MiB")
	b.ReportMetric(growth, "B/document")
	versus.Report(b, versus.Row{Work: "heap growth for each document waiting to expire", Unit: " bytes", Lapse: growth, Goal: versus.AtMost(4)})
}

// TestPendingDocumentsTakeNoHeap: the machine's memory grows with the collections, not
// with the documents that wait in them. That makes a million documents possible.
func TestPendingDocumentsTakeNoHeap(t *testing.T) {
	const collections = 100
	few := startWaiting(t, collections, 1<<20).cost(2 * collections)
	many := startWaiting(t, collections, 1<<20).cost(100 * collections)
	t.Logf("few documents: %+v, many: %+v", few, many)
	if more := many.machine - few.machine; more > 32<<10 {
		t.Errorf("%d more documents take %d more bytes of the machine", 98*collections, more)
	}
}
