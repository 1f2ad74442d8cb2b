package processor

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/versus"
)

// waiting is a machine with documents that wait for their deadline, no NATS
// around it. Its projection is on disk, with caches so small that they cannot
// hide, nor be mistaken for, what the machine keeps of the documents.
type waiting struct {
	tb          testing.TB
	dir         string
	store       *projections.Store
	machine     *Machine
	collections int
}

func startWaiting(tb testing.TB, collections int) *waiting {
	tb.Helper()
	w := &waiting{tb: tb, dir: tb.TempDir(), collections: collections}
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
	return w
}

func (w *waiting) open() {
	var err error
	w.store, err = projections.Open(w.dir, projections.Options{CacheBytes: 1 << 20, MemTableBytes: 4 << 20})
	if err != nil {
		w.tb.Fatal(err)
	}
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
	if w.machine.Pending() >= turnRequests {
		w.fold()
	}
}

func (w *waiting) fold() {
	w.machine.Take()
	if err := w.machine.Commit(w.machine.Seq()); err != nil {
		w.tb.Fatal(err)
	}
}

// fill stores documents, half of them with a ttl of their own, so that they
// wait in both queues of every collection and for a thousand different seconds.
func (w *waiting) fill(documents int) {
	for n := range documents {
		ttl := ""
		if n/w.collections%2 == 0 {
			ttl = fmt.Sprintf(`"ttl":%d,`, 3600+n%997)
		}
		w.decide(int64(n), "document.create."+w.collection(n)+"."+versus.ID(n), string(versus.DocumentWith(n, ttl)))
	}
	w.fold()
}

// heap is what is alive on the heap. Pebble's block cache and memtables are
// not in it where Go calls C: they are allocated there.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers and pools let go of
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// cost is what documents add to the heap: while they come, and to that of a
// machine that is started over them, and how much of the latter is the
// machine's own, the rest being Pebble's.
type cost struct{ live, restarted, machine int64 }

func (w *waiting) cost(documents int) (c cost) {
	empty := heap()
	w.fill(documents)
	settle()
	c.live = heap() - empty
	w.machine = nil
	if err := w.store.Close(); err != nil {
		w.tb.Fatal(err)
	}
	w.open()
	settle()
	all := heap()
	c.restarted = all - empty
	w.machine = nil
	c.machine = all - heap()
	return c
}

// settle lets Pebble end the flushes and compactions that hold memory of
// their own.
func settle() { time.Sleep(200 * time.Millisecond) }

// BenchmarkMillionPending says what a million documents that wait for their
// deadline, in 1,000 collections, add to the heap, in MiB.
func BenchmarkMillionPending(b *testing.B) {
	const documents, collections, mib = 1_000_000, 1_000, 1 << 20
	var c cost
	for b.Loop() {
		c = startWaiting(b, collections).cost(documents)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(c.live)/mib, "live-MiB")
	b.ReportMetric(float64(c.restarted)/mib, "restarted-MiB")
	b.ReportMetric(float64(c.machine)/mib, "machine-MiB")
}

// TestPendingDocumentsTakeNoHeap holds the machine to what makes a million
// documents possible: what it keeps in memory grows with the collections, not
// with the documents that wait in them.
func TestPendingDocumentsTakeNoHeap(t *testing.T) {
	const collections = 100
	few := startWaiting(t, collections).cost(2 * collections)
	many := startWaiting(t, collections).cost(100 * collections)
	t.Logf("few documents: %+v, many: %+v", few, many)
	if more := many.machine - few.machine; more > 32<<10 {
		t.Errorf("%d more documents take %d more bytes of the machine", 98*collections, more)
	}
}
