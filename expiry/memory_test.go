package expiry

import (
	"math/rand/v2"
	"testing"
)

// room returns the number of chunks of a wheel, free ones included, and of entries that
// free chunks, firing and scratch retain.
func room[V any](w *Wheel[V]) (chunks, retained int) {
	chunks = w.chunks
	for c := w.free; c != nil; c = c.next {
		chunks++
		for _, e := range c.entries {
			if e.timer != nil {
				retained++
			}
		}
	}
	for _, entries := range [][]entry[V]{w.firing, w.scratch} {
		for _, e := range entries[:cap(entries)] {
			if e.timer != nil {
				retained++
			}
		}
	}
	return chunks, retained
}

func TestMemoryStaysFlat(t *testing.T) {
	w := New[int](start)
	now := int64(start)
	cycle := func() {
		timers := make([]Timer[int], 50_000)
		for i := range timers {
			w.Set(&timers[i], now+int64(i*i%7919))
		}
		for i := range timers {
			w.Set(&timers[i], now+int64(i*i%7907))
		}
		now += 10_000
		w.Advance(now, func(*Timer[int], int64) {})
		if w.Len() != 0 || w.chunks != 0 {
			t.Fatalf("%d armed, %d chunks in use after all have fired", w.Len(), w.chunks)
		}
	}
	cycle()
	chunks, _ := room(w)
	for range 20 {
		cycle()
	}
	if again, retained := room(w); again != chunks || retained > 0 {
		t.Errorf("from %d chunks to %d, with %d entries", chunks, again, retained)
	}
}

// TestStaleEntriesAreBounded: repeatedly moving and removing timers does not accumulate
// entries.
func TestStaleEntriesAreBounded(t *testing.T) {
	const n = 1000
	most := (2*n+levels*digits*chunkSize)/chunkSize + 1
	for name, turn := range map[string]func(w *Wheel[int], t *Timer[int], round int64){
		"earlier":         func(w *Wheel[int], t *Timer[int], round int64) { w.Set(t, start+1_000_000-round) },
		"later":           func(w *Wheel[int], t *Timer[int], round int64) { w.Set(t, start+1000+round) },
		"removed and set": func(w *Wheel[int], t *Timer[int], round int64) { w.Remove(t); w.Set(t, start+1_000_000-round) },
		"fired and set": func(w *Wheel[int], t *Timer[int], round int64) {
			w.Set(t, start)
			w.Advance(start, func(t *Timer[int], _ int64) { w.Set(t, start+1000) })
		},
	} {
		w := New[int](start)
		timers := make([]Timer[int], n)
		for round := range int64(300) {
			for i := range timers {
				turn(w, &timers[i], round)
			}
		}
		if chunks, _ := room(w); chunks > most {
			t.Errorf("%s: %d chunks for %d timers", name, chunks, n)
		}
		fired := 0
		w.Advance(start+2_000_000, func(*Timer[int], int64) { fired++ })
		if fired != n {
			t.Errorf("%s: %d of %d timers fired", name, fired, n)
		}
	}
	w := New[int](start)
	timers := make([]Timer[int], 100*n)
	for i := range timers {
		w.Set(&timers[i], start+int64(i))
	}
	for i := range timers {
		w.Remove(&timers[i])
	}
	if w.chunks > most {
		t.Errorf("all removed: %d chunks in use", w.chunks)
	}
}

func TestNoAllocations(t *testing.T) {
	w := New[int](start)
	timers := make([]Timer[int], 1000)
	for i := range timers {
		w.Set(&timers[i], start+int64(i))
	}
	now, turn := int64(start), int64(0)
	for _, test := range []struct {
		name string
		f    func()
	}{
		{"re-arm", func() {
			for i := range timers {
				turn++
				w.Set(&timers[i], now+5000+turn*int64(i)%100_000)
			}
			w.Next()
		}},
		{"remove and arm", func() {
			for i := range timers {
				w.Remove(&timers[i])
				w.Set(&timers[i], now+int64(i))
			}
		}},
		{"fire and arm again", func() {
			now += 5000
			w.Advance(now, func(t *Timer[int], at int64) { w.Set(t, now-at%3) })
		}},
	} {
		if n := testing.AllocsPerRun(20, test.f); n != 0 {
			t.Errorf("%s: %v allocations", test.name, n)
		}
	}
}

func TestSortBySet(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	w := New[int](start)
	for _, n := range []int{0, 1, 2, 16, 17, 100, 3000} {
		for _, span := range []uint64{1, 200, 1 << 20, 1 << 63} {
			s := make([]entry[int], n)
			timers := make([]Timer[int], n)
			for i := range s {
				s[i] = entry[int]{&timers[i], 1 + rnd.Uint64N(span)}
				timers[i].set = s[i].key
			}
			for range 2 { // the second time it is sorted
				w.sortBySet(s)
				for i, e := range s {
					if i > 0 && s[i-1].key > e.key || e.timer.set != e.key {
						t.Fatalf("%d entries up to %d: wrong at %d", n, span, i)
					}
				}
			}
		}
	}
}
