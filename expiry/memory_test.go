package expiry

import (
	"fmt"
	"testing"
)

func TestMemoryStaysFlat(t *testing.T) {
	w := New[string](start)
	now := int64(start)
	cycle := func() {
		for i := range 5000 {
			w.Set(fmt.Sprint(now, i), now+int64(i*i%7919))
		}
		now += 10_000
		w.Advance(now, func(string, int64) {})
		if w.Len() != 0 {
			t.Fatalf("%d armed after all have fired", w.Len())
		}
	}
	cycle()
	entries, pages, cells := w.fresh, len(w.pages), len(w.index.cells)
	for range 50 {
		cycle()
	}
	if w.fresh != entries || len(w.pages) != pages || len(w.index.cells) != cells || entries != firstEntry+5000 {
		t.Errorf("from %d entries, %d pages, %d cells to %d, %d, %d", entries, pages, cells, w.fresh, len(w.pages), len(w.index.cells))
	}
	for i := int32(0); i < w.fresh; i++ {
		if key := w.entry(i).key; key != "" {
			t.Fatalf("entry %d retains %s", i, key)
		}
	}
	for _, c := range w.index.cells {
		if c.entry != 0 {
			t.Fatalf("the index retains entry %d", c.entry)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	w := New[string](start)
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
		w.Set(keys[i], start+int64(i))
	}
	now, turn := int64(start), int64(0)
	for name, f := range map[string]func(){
		"re-arm": func() {
			for i, key := range keys {
				turn++
				w.Set(key, now+turn*int64(i)%100_000)
			}
			w.Next()
		},
		"remove and arm": func() {
			for i, key := range keys {
				w.Remove(key)
				w.Set(key, now+int64(i))
			}
		},
		"fire and arm again": func() {
			now += 5000
			w.Advance(now, func(key string, at int64) { w.Set(key, now-at%3) })
		},
	} {
		if n := testing.AllocsPerRun(20, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
