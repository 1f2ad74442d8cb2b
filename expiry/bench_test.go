package expiry

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

const million = 1_000_000

// queue is a key of the kind the processor uses.
type queue struct {
	collection uint64
	inherits   bool
}

// timer is what the wheel and its peer have in common.
type timer interface {
	Set(queue, int64)
	Remove(queue)
	Next() (int64, bool)
	Advance(int64, func(queue, int64))
}

const (
	benchStart = 1_750_000_000
	hour       = 3600
	day        = 24 * hour
)

// load is the work of a benchmark, drawn beforehand: calls of Set.
type load struct {
	arm, rearm []call
}

type call struct {
	key queue
	at  int64
}

// newLoad spreads n deadlines evenly over span seconds.
func newLoad(n int, span int64) load {
	rnd := rand.New(rand.NewPCG(1, 2))
	var l load
	for i := range n {
		key := queue{uint64(i / 2), i%2 == 1}
		l.arm = append(l.arm, call{key, benchStart + 1 + rnd.Int64N(span)})
		l.rearm = append(l.rearm, call{key, benchStart + 1 + rnd.Int64N(span)})
	}
	for _, calls := range [][]call{l.arm, l.rearm} {
		rnd.Shuffle(n, func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
	}
	return l
}

// run arms every key, re-arms each once in another order and fires all of them,
// going from second to second as simulate does. It returns when each of the
// three began, and when the last ended.
func (l load) run(tb testing.TB, t timer) (times [4]time.Time) {
	times[0] = time.Now()
	for _, c := range l.arm {
		t.Set(c.key, c.at)
	}
	times[1] = time.Now()
	for _, c := range l.rearm {
		t.Set(c.key, c.at)
	}
	times[2] = time.Now()
	fired := 0
	fire := func(queue, int64) { fired++ }
	for at, ok := t.Next(); ok; at, ok = t.Next() {
		t.Advance(at, fire)
	}
	times[3] = time.Now()
	if fired != len(l.arm) {
		tb.Fatalf("%d of %d keys fired", fired, len(l.arm))
	}
	return times
}

// timed runs and lowers best to what arming, re-arming and firing took.
func (l load) timed(tb testing.TB, t timer, best *[3]time.Duration) {
	runtime.GC()
	times := l.run(tb, t)
	for i := range best {
		if took := times[i+1].Sub(times[i]); best[i] == 0 || took < best[i] {
			best[i] = took
		}
	}
}

func wheelTimer() timer    { return New[queue](benchStart) }
func heapTimerPeer() timer { return newHeapTimer[queue]() }

func benchmark(b *testing.B, fresh func() timer) {
	l := newLoad(million, day)
	b.ReportAllocs()
	for b.Loop() {
		l.run(b, fresh())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/million, "ns/key")
}

func BenchmarkWheel(b *testing.B) { benchmark(b, wheelTimer) }
func BenchmarkHeap(b *testing.B)  { benchmark(b, heapTimerPeer) }

// BenchmarkWheelAgainstHeap does the same work with one and the other in turn
// and compares the best round of each, so that it matters little what else the
// machine does.
func BenchmarkWheelAgainstHeap(b *testing.B) {
	for _, span := range []struct {
		name    string
		seconds int64
	}{{"hour", hour}, {"day", day}, {"month", 30 * day}} {
		b.Run(span.name, func(b *testing.B) {
			l := newLoad(million, span.seconds)
			var wheel, heap [3]time.Duration
			for b.Loop() {
				l.timed(b, wheelTimer(), &wheel)
				l.timed(b, heapTimerPeer(), &heap)
			}
			var wheels, heaps time.Duration
			for i, phase := range []string{"arm", "rearm", "fire"} {
				b.ReportMetric(float64(heap[i])/float64(wheel[i]), phase+"_x_heap")
				b.ReportMetric(float64(wheel[i].Nanoseconds())/million, phase+"_ns/key")
				wheels += wheel[i]
				heaps += heap[i]
			}
			b.ReportMetric(float64(heaps)/float64(wheels), "x_heap")
		})
	}
}

// BenchmarkMemory reports what an armed key takes, the index included.
func BenchmarkMemory(b *testing.B) {
	l := newLoad(million, day)
	for _, kind := range []struct {
		name  string
		fresh func() timer
	}{{"wheel", wheelTimer}, {"heap", heapTimerPeer}} {
		b.Run(kind.name, func(b *testing.B) {
			for b.Loop() {
				before := heapInUse()
				t := kind.fresh()
				for _, c := range l.arm {
					t.Set(c.key, c.at)
				}
				b.ReportMetric(float64(heapInUse()-before)/million, "B/key")
				runtime.KeepAlive(t)
			}
		})
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
