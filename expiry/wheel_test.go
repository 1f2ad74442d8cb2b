package expiry

import (
	"math"
	"testing"
)

const start = 1_750_000_000

// keyed is a wheel whose timers are found by name, for tests.
type keyed struct {
	*Wheel[string]
	timers map[string]*Timer[string]
}

func newKeyed(now int64) keyed { return keyed{New[string](now), map[string]*Timer[string]{}} }

func (w keyed) timer(key string) *Timer[string] {
	if w.timers[key] == nil {
		w.timers[key] = &Timer[string]{Value: key}
	}
	return w.timers[key]
}

func (w keyed) Set(key string, at int64)    { w.Wheel.Set(w.timer(key), at) }
func (w keyed) Remove(key string)           { w.Wheel.Remove(w.timer(key)) }
func (w keyed) At(key string) (int64, bool) { return w.timer(key).At() }
func (w keyed) Advance(now int64, fire func(key string, at int64)) {
	w.Wheel.Advance(now, func(t *Timer[string], at int64) { fire(t.Value, at) })
}

func TestSet(t *testing.T) {
	for _, test := range []struct {
		name   string
		set    []int64 // the same key, one after the other
		to     []int64 // Advance, one after the other
		fires  int     // index of the Advance that fires, or -1
		wantAt int64
	}{
		{"in time", []int64{start + 5}, []int64{start + 4, start + 5}, 1, start + 5},
		{"late", []int64{start + 5}, []int64{start + 4, start + 9}, 1, start + 5},
		{"moved later", []int64{start + 5, start + 70}, []int64{start + 69, start + 70}, 1, start + 70},
		{"moved earlier", []int64{start + 5000, start + 70}, []int64{start + 69, start + 70}, 1, start + 70},
		{"now", []int64{start}, []int64{start}, 0, start},
		{"before now", []int64{start - 5000}, []int64{start}, 0, start - 5000},
		{"time going back", []int64{start - 5000}, []int64{start - 1, start}, 1, start - 5000},
		{"the longest ttl", []int64{start + math.MaxInt32}, []int64{start + math.MaxInt32 - 1, start + math.MaxInt32}, 1, start + math.MaxInt32},
		{"beyond six levels", []int64{start + 1<<40}, []int64{start + 1<<39, start + 1<<40 - 1, start + 1<<40}, 2, start + 1<<40},
		{"the last second", []int64{math.MaxInt64}, []int64{math.MaxInt64 - 1, math.MaxInt64}, 1, math.MaxInt64},
		{"the first second", []int64{math.MinInt64}, []int64{start}, 0, math.MinInt64},
		{"not yet", []int64{start + 64}, []int64{start + 63}, -1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newKeyed(start)
			for _, at := range test.set {
				w.Set("k", at)
			}
			last := test.set[len(test.set)-1]
			if at, ok := w.At("k"); !ok || at != last {
				t.Fatalf("At: %d, %v; want %d", at, ok, last)
			}
			if at, ok := w.Next(); !ok || at != last {
				t.Fatalf("Next: %d, %v; want %d", at, ok, last)
			}
			fired, firedAt := -1, int64(0)
			for i, now := range test.to {
				w.Advance(now, func(_ string, at int64) { fired, firedAt = i, at })
				check(t, w)
			}
			if fired != test.fires || firedAt != test.wantAt {
				t.Fatalf("fired by Advance %d at %d; want %d at %d", fired, firedAt, test.fires, test.wantAt)
			}
		})
	}
}

func TestRemove(t *testing.T) {
	w := newKeyed(start)
	w.Remove("a")
	w.Set("a", start+100)
	w.Set("b", start+200)
	w.Remove("a")
	w.Remove("a")
	if at, ok := w.Next(); !ok || at != start+200 || w.Len() != 1 {
		t.Fatalf("Next: %d, %v; Len: %d", at, ok, w.Len())
	}
	w.Advance(start+100, func(key string, at int64) { t.Fatalf("%s fired at %d", key, at) })
	if at, ok := w.At("a"); ok {
		t.Fatalf("a is armed at %d", at)
	}
	w.Remove("b")
	if at, ok := w.Next(); ok || w.Len() != 0 {
		t.Fatalf("Next: %d, %v; Len: %d", at, ok, w.Len())
	}
	w.Advance(start+1000, func(key string, at int64) { t.Fatalf("%s fired at %d", key, at) })
}
