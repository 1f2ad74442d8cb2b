package expiry

import "math"

// Timer fires at one second. Its owner holds it, so the wheel needs no lookup.
// The zero Timer is not armed.
//
// A timer belongs to the wheel that first set it, and must not be copied afterwards.
type Timer[V any] struct {
	Value V // the owner's, for fire

	at    tick   // when it fires, if armed
	filed tick   // second of its entry in the wheel, never after at; 0 for none
	set   uint64 // number of the call of Set that armed it; 0 if it is not armed
}

// At returns the second at which the timer is armed.
func (t *Timer[V]) At() (at int64, ok bool) {
	if t.set == 0 {
		return 0, false
	}
	return t.at.second(), true
}

// Wheel arms timers. Times are seconds since 1970, any int64; math.MinInt64 counts
// as the second after it.
//
// Measured at a million timers with a pointer as Value, a timer takes 32 bytes and
// its entry 16; container/heap takes 24 and 9. An empty wheel takes 23 KB. Stale
// entries of moved and removed timers stay until their second; they are at most as many
// as the armed timers, plus 1.4 MB. Memory of fired timers is reused, not freed.
//
// Set and Remove take constant time, amortised, and At and Len constant time.
// A Wheel is not safe for concurrent use.
type Wheel[V any] struct {
	now    tick
	sets   uint64 // calls of Set so far
	armed  int
	chunks int // of entries, stale ones included

	// inbox holds the entries filed since the last Advance. The next one moves them
	// into slots without reading the timers.
	inbox    list[V]
	slots    [levels * digits]list[V] // see slot.go
	levels   uint16                   // bit l: occupied[l] is not zero
	occupied [levels]uint64           // bit d of level l: slots[64l+d] is not empty
	free     *chunk[V]

	// firing holds the due entries of the current Advance in order, from next on.
	// Their keys are the Timer.set of when they became due: a timer with another
	// set was set or removed since.
	firing    []entry[V]
	next      int
	scratch   []entry[V]
	advancing bool
}

// New returns an empty wheel whose time is now.
func New[V any](now int64) *Wheel[V] { return &Wheel[V]{now: tickOf(now)} }

// Set arms t at the second at. A timer that is armed already is moved, earlier
// or later, and counts as set last among those of its second even if the
// second is the same.
//
// The next Advance fires a timer whose time is not after the wheel's.
func (w *Wheel[V]) Set(t *Timer[V], at int64) {
	if t.set == 0 {
		w.armed++
	}
	w.sets++
	t.set, t.at = w.sets, tickOf(at)
	if t.filed == 0 || t.at < t.filed {
		w.post(t)
		w.tidy()
	}
}

// post files t in the inbox.
func (w *Wheel[V]) post(t *Timer[V]) {
	if w.inbox.room == 0 {
		w.grow(&w.inbox)
	}
	t.filed = t.at
	w.inbox.add(t, t.at)
}

// Remove disarms t, if it is armed.
func (w *Wheel[V]) Remove(t *Timer[V]) {
	if t.set != 0 {
		t.set = 0
		w.armed--
		w.tidy()
	}
}

// Len returns the number of armed timers.
func (w *Wheel[V]) Len() int { return w.armed }

// tick is a second as an unsigned number in the same order, so that its base-64
// digits are slots. 0 is for none.
type tick uint64

func tickOf(second int64) tick { return max(1, tick(second)^1<<63) }
func (t tick) second() int64   { return int64(t ^ 1<<63) }

const never tick = math.MaxUint64 // also the last second there is
