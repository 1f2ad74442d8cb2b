package expiry

import (
	"cmp"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/versus"
)

var owner int

const (
	million    = 1_000_000
	benchStart = 1_750_000_000
	hour       = 3600
	day        = 24 * hour
)

// load is the work of a benchmark, drawn beforehand: calls of Set.
type load struct{ arm, rearm []call }

type call struct {
	timer int
	at    int64
}

// newLoad arms n timers, spread evenly over span seconds, then re-arms each once in
// another order: the given share later by up to span, as renewals do, the others
// earlier.
func newLoad(n int, span int64, later float64) load {
	rnd := rand.New(rand.NewPCG(1, 2))
	var l load
	for i := range n {
		in := 1 + rnd.Int64N(span)
		l.arm = append(l.arm, call{i, benchStart + in})
		if rnd.Float64() < later {
			in += 1 + rnd.Int64N(span)
		} else {
			in = 1 + rnd.Int64N(in)
		}
		l.rearm = append(l.rearm, call{i, benchStart + in})
	}
	for _, calls := range [][]call{l.arm, l.rearm} {
		rnd.Shuffle(n, func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
	}
	return l
}

// phases are the times of arming, re-arming and firing.
type phases [3]time.Duration

func (p phases) total() time.Duration { return p[0] + p[1] + p[2] }

// run arms every timer, re-arms each once and fires all of them, going from
// second to second as simulate does.
func run[T any](b *testing.B, l load, set func(timer int, at int64), next func() (int64, bool), advance func(int64, func(*T, int64))) (took phases) {
	runtime.GC()
	fired, last := 0, int64(0)
	fire := func(_ *T, at int64) {
		if at < last {
			b.Fatal("out of order")
		}
		last = at
		fired++
	}
	for i, phase := range []func(){
		func() {
			for _, c := range l.arm {
				set(c.timer, c.at)
			}
		},
		func() {
			for _, c := range l.rearm {
				set(c.timer, c.at)
			}
		},
		func() {
			for at, ok := next(); ok; at, ok = next() {
				advance(at, fire)
			}
		},
	} {
		began := time.Now()
		phase()
		took[i] = time.Since(began)
	}
	if fired != len(l.arm) {
		b.Fatalf("%d of %d timers fired", fired, len(l.arm))
	}
	return took
}

// Timers and items are made beforehand: their owners have them anyway.

func (l load) wheel(b *testing.B) phases {
	w, timers := New[*int](benchStart), newTimers(len(l.arm))
	set := func(timer int, at int64) { w.Set(&timers[timer], at) }
	return run(b, l, set, w.Next, w.Advance)
}

func (l load) heap(b *testing.B) phases {
	h, items := new(heapTimers), newHeapItems(len(l.arm))
	set := func(timer int, at int64) { h.Set(&items[timer], at) }
	return run(b, l, set, h.Next, h.Advance)
}

func newTimers(n int) []Timer[*int] {
	timers := make([]Timer[*int], n)
	for i := range timers {
		timers[i].Value = &owner
	}
	return timers
}

func newHeapItems(n int) []heapItem {
	items := make([]heapItem, n)
	for i := range items {
		items[i].index = -1
		items[i].value = &owner
	}
	return items
}

// BenchmarkWheelAgainstHeap runs the same work on wheel and heap in turn and compares
// the medians.
func BenchmarkWheelAgainstHeap(b *testing.B) {
	for _, test := range []struct {
		name, work string
		span       int64
		later      float64
	}{
		{"hour/renewals", "timers armed, renewed and fired, a million over an hour", hour, .9},
		{"day/renewals", "timers armed, renewed and fired, a million over a day", day, .9},
		{"day/half_earlier", "timers armed, half of them brought forward, fired, a million over a day", day, .5},
	} {
		b.Run(test.name, func(b *testing.B) {
			l := newLoad(million, test.span, test.later)
			var wheels, heaps []phases
			for b.Loop() {
				for range versus.Rounds {
					wheels = append(wheels, l.wheel(b))
					heaps = append(heaps, l.heap(b))
				}
			}
			b.ReportMetric(0, "ns/op")
			wheel, heap := median(wheels), median(heaps)
			perSecond := func(p phases) float64 { return million / p.total().Seconds() }
			versus.Report(b, versus.Row{Work: test.work, Peer: "`container/heap`", Unit: "/s", Goal: versus.AtLeast(5),
				Lapse: perSecond(wheel), Other: perSecond(heap), Ratio: float64(heap.total()) / float64(wheel.total())})
			for i, phase := range []string{"arm", "rearm", "fire"} {
				b.ReportMetric(float64(wheel[i].Nanoseconds())/million, phase+"_ns/timer")
				b.ReportMetric(float64(heap[i])/float64(wheel[i]), phase+"_x_heap")
			}
			b.ReportMetric(float64(heap.total())/float64(wheel.total()), "x_heap")
		})
	}
}

// median returns the round with the median total time.
func median(rounds []phases) phases {
	slices.SortFunc(rounds, func(a, b phases) int { return cmp.Compare(a.total(), b.total()) })
	return rounds[len(rounds)/2]
}

func BenchmarkWheel(b *testing.B) {
	l := newLoad(million, day, .9)
	for b.Loop() {
		l.wheel(b)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/million, "ns/timer")
}

// BenchmarkMemory reports the bytes of an armed timer, the Timer itself included.
func BenchmarkMemory(b *testing.B) {
	l := newLoad(million, day, .9)
	report := func(b *testing.B, make func() (set func(timer int, at int64), keep any)) {
		for b.Loop() {
			before := heapInUse()
			set, keep := make()
			for i, calls := range [][]call{l.arm, l.rearm} {
				for _, c := range calls {
					set(c.timer, c.at)
				}
				b.ReportMetric(float64(heapInUse()-before)/million, []string{"B/timer", "B/timer_rearmed"}[i])
			}
			runtime.KeepAlive(keep)
		}
	}
	b.Run("wheel", func(b *testing.B) {
		report(b, func() (func(int, int64), any) {
			w, timers := New[*int](benchStart), newTimers(million)
			return func(timer int, at int64) { w.Set(&timers[timer], at) }, w
		})
	})
	b.Run("heap", func(b *testing.B) {
		report(b, func() (func(int, int64), any) {
			h, items := new(heapTimers), newHeapItems(million)
			return func(timer int, at int64) { h.Set(&items[timer], at) }, h
		})
	})
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
