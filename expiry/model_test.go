package expiry

import (
	"math"
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

// model is a naive wheel.
type model struct {
	now   int64
	sets  int // calls of Set so far
	armed map[string]armed
	moved bool // whether any was set while armed, or removed
}

type armed struct {
	at  int64
	set int // which call of Set it was
}

func (m *model) Set(key string, at int64) {
	m.sets++
	_, again := m.armed[key]
	m.moved = m.moved || again
	m.armed[key] = armed{at, m.sets}
}

// first returns the next key to fire among those set by the call upTo or before.
func (m *model) first(upTo int) (key string, first armed, ok bool) {
	for k, a := range m.armed {
		if a.set <= upTo && (!ok || a.at < first.at || a.at == first.at && a.set < first.set) {
			key, first, ok = k, a, true
		}
	}
	return key, first, ok
}

// seconds draws a time: near, on the edge of a slot of any level, or anywhere.
func seconds(t *rapid.T, now int64) int64 { return max(anySecond(t, now), math.MinInt64+1) }

func anySecond(t *rapid.T, now int64) int64 {
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return rapid.Int64().Draw(t, "at")
	case 1:
		return now - rapid.Int64Range(0, 100).Draw(t, "ago")
	case 2:
		shift := digitBits * rapid.IntRange(0, levels-1).Draw(t, "level")
		edge := now&^(1<<shift-1) + rapid.Int64Range(0, 3).Draw(t, "slots")<<shift
		return edge + rapid.Int64Range(-1, 1).Draw(t, "off")
	default:
		return now + rapid.Int64Range(0, 130).Draw(t, "in")
	}
}

func TestWheelAgainstModel(t *testing.T) {
	keys := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"})
	rapid.Check(t, func(t *rapid.T) {
		m := &model{now: seconds(t, 1_750_000_000), armed: map[string]armed{}}
		w := newKeyed(m.now)
		set := func(t *rapid.T) {
			key, at := keys.Draw(t, "key"), seconds(t, m.now)
			m.Set(key, at)
			w.Set(key, at)
		}
		remove := func(t *rapid.T) {
			key := keys.Draw(t, "key")
			delete(m.armed, key)
			m.moved = true
			w.Remove(key)
		}
		next := func(t *rapid.T) {
			_, want, wantOK := m.first(math.MaxInt)
			// It may be early only if a timer was moved or removed.
			if at, ok := w.Next(); ok != wantOK || at > want.at || at < want.at && !m.moved {
				t.Fatalf("Next: %d, %v; want %d, %v", at, ok, want.at, wantOK)
			}
		}
		renew := func(*rapid.T) { w.renew() }
		advance := func(t *rapid.T) {
			now := seconds(t, m.now)
			if at, ok := w.Next(); ok && rapid.Bool().Draw(t, "to next") {
				now = at
			}
			back := now < m.now
			m.now = max(m.now, now)
			upTo, calls := m.sets, 0
			w.Advance(now, func(key string, at int64) {
				wantKey, want, ok := m.first(upTo)
				if back || !ok || key != wantKey || at != want.at || at > now {
					t.Fatalf("Advance to %d fired %s at %d; want %s at %d, %v", now, key, at, wantKey, want.at, ok)
				}
				delete(m.armed, key)
				n := rapid.IntRange(0, 2).Draw(t, "calls within fire")
				calls += n
				for range n {
					rapid.SampledFrom([]func(*rapid.T){set, remove, next, renew}).Draw(t, "call")(t)
				}
			})
			if _, a, ok := m.first(upTo); ok && !back && a.at <= now {
				t.Fatalf("Advance to %d left one at %d", now, a.at)
			}
			if at, ok := w.Next(); ok && !back && calls == 0 && at <= now {
				t.Fatalf("Next: %d after Advance to %d", at, now)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": set, "set again": set, "remove": remove, "advance": advance, "next": next, "renew": renew,
			"": func(t *rapid.T) {
				check(t, w)
				if w.Len() != len(m.armed) {
					t.Fatalf("Len: %d; want %d", w.Len(), len(m.armed))
				}
				for key, a := range m.armed {
					if at, ok := w.At(key); !ok || at != a.at {
						t.Fatalf("At %s: %d, %v; want %d", key, at, ok, a.at)
					}
				}
			},
		})
	})
}

// check fails on broken lists and bitmaps, and on armed timers that are not in them.
func check(t interface{ Fatalf(string, ...any) }, w keyed) {
	filed := map[*Timer[string]]bool{}
	chunks := 0
	look := func(l *list[string], right func(at tick) bool) (n int) {
		for c := l.first; c != nil; c = c.next {
			chunks++
			entries := c.entries[:]
			if c == l.last {
				entries = entries[:chunkSize-l.room]
			}
			for _, e := range entries {
				if at := tick(e.key); at < l.earliest || !right(at) {
					t.Fatalf("an entry at %d in the wrong place", at.second())
				}
				if tick(e.key) == e.timer.filed {
					filed[e.timer] = true
				}
				n++
			}
		}
		return n
	}
	look(&w.inbox, func(tick) bool { return true })
	for i := range w.slots {
		level, digit := i/digits, i%digits
		n := look(&w.slots[i], func(at tick) bool {
			differ := bits.Len64(uint64(at^w.now) >> (level * digitBits))
			return at > w.now && differ <= digitBits && (differ > 0 || level == 0) && int(at>>(level*digitBits)%digits) == digit
		})
		if occupied := w.occupied[level]>>digit&1 != 0; occupied != (n > 0) {
			t.Fatalf("level %d, slot %d with %d entries: the bitmap says %v", level, digit, n, occupied)
		}
	}
	for level, occupied := range w.occupied {
		if (w.levels>>level&1 != 0) != (occupied != 0) {
			t.Fatalf("level %d: the bitmap of levels is wrong", level)
		}
	}
	if chunks != w.chunks {
		t.Fatalf("%d chunks in use; the wheel counts %d", chunks, w.chunks)
	}
	for _, e := range w.firing[w.next:] {
		if e.key == e.timer.set {
			filed[e.timer] = true
		}
	}
	for key, timer := range w.timers {
		if timer.set != 0 && (!filed[timer] || timer.filed > timer.at) {
			t.Fatalf("%s is armed and not in the wheel", key)
		}
	}
}
