package expiry

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"testing"

	"pgregory.net/rapid"
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

// model is a naive wheel.
type model struct {
	now   int64
	sets  int // calls of Set so far
	armed map[string]armed
}

type armed struct {
	at  int64
	set int // which call of Set it was
}

func (m *model) Set(key string, at int64) {
	m.sets++
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
func seconds(t *rapid.T, now int64) int64 {
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64})).Draw(t, "at")
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
		m := &model{now: seconds(t, start), armed: map[string]armed{}}
		w := newKeyed(m.now)
		set := func(t *rapid.T) {
			key, at := keys.Draw(t, "key"), seconds(t, m.now)
			m.Set(key, at)
			w.Set(key, at)
		}
		remove := func(t *rapid.T) {
			key := keys.Draw(t, "key")
			delete(m.armed, key)
			w.Remove(key)
		}
		next := func(t *rapid.T) {
			_, want, wantOK := m.first(math.MaxInt)
			if at, ok := w.Next(); ok != wantOK || at != want.at {
				t.Fatalf("Next: %d, %v; want %d, %v", at, ok, want.at, wantOK)
			}
		}
		advance := func(t *rapid.T) {
			now := seconds(t, m.now)
			if at, ok := w.Next(); ok && rapid.Bool().Draw(t, "to next") {
				now = at
			}
			back := now < m.now
			m.now = max(m.now, now)
			upTo := m.sets
			w.Advance(now, func(key string, at int64) {
				wantKey, want, ok := m.first(upTo)
				if back || !ok || key != wantKey || at != want.at || at > now {
					t.Fatalf("Advance to %d fired %s at %d; want %s at %d, %v", now, key, at, wantKey, want.at, ok)
				}
				delete(m.armed, key)
				for range rapid.IntRange(0, 2).Draw(t, "calls within fire") {
					rapid.SampledFrom([]func(*rapid.T){set, remove, next}).Draw(t, "call")(t)
				}
			})
			if _, a, ok := m.first(upTo); ok && !back && a.at <= now {
				t.Fatalf("Advance to %d left one at %d", now, a.at)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": set, "set again": set, "remove": remove, "advance": advance, "next": next,
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

// check fails on broken lists and bitmaps.
func check(t interface{ Fatalf(string, ...any) }, w keyed) {
	n := 0
	look := func(l *list[string], right func(at tick) bool) {
		var prev *Timer[string]
		for timer := l.first; timer != nil; prev, timer = timer, timer.next {
			if timer.in != l || timer.prev != prev || !right(timer.at) {
				t.Fatalf("%s at %d is in the wrong place", timer.Value, timer.at.second())
			}
			n++
		}
		if l.last != prev {
			t.Fatalf("a list ends too early")
		}
	}
	past := func(at tick) bool { return at <= w.now }
	look(&w.firing, past)
	look(&w.late, past)
	for i := range w.slots {
		level, digit := i/digits, i%digits
		look(&w.slots[i], func(at tick) bool {
			differ := bits.Len64(uint64(at^w.now) >> (level * digitBits))
			return at > w.now && differ <= digitBits && (differ > 0 || level == 0) && int(at>>(level*digitBits)%digits) == digit &&
				w.occupied[level]>>digit&1 != 0 && w.levels>>level&1 != 0
		})
	}
	if n != w.Len() {
		t.Fatalf("%d timers are in lists; Len: %d", n, w.Len())
	}
}

// TestFirePanics: what fire did not end stays, and fires in its order by the next Advance.
func TestFirePanics(t *testing.T) {
	w := newKeyed(start)
	var notes strings.Builder
	fire := func(key string, at int64) { fmt.Fprintf(&notes, "%s@%d ", key, at-start) }
	w.Set("a", start+1)
	w.Set("b", start+2)
	w.Set("c", start+2)
	func() {
		defer func() { notes.WriteString(fmt.Sprint(recover(), " ")) }()
		w.Advance(start+2, func(string, int64) { w.Advance(start+3, fire) })
	}()
	w.Set("d", start+2)
	w.Set("e", start+1)
	left := w.Len()
	w.Advance(start+2, fire)
	const want = "expiry: Advance called from within fire e@1 b@2 c@2 d@2 "
	if notes.String() != want || left != 4 {
		t.Errorf("fired %s\nwant %s; Len before: %d", notes.String(), want, left)
	}
}
