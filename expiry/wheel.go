package expiry

import (
	"cmp"
	"math"
	"slices"
)

// Timer fires at one second. Its owner holds it, so the wheel needs no lookup.
// The zero Timer is not armed.
//
// A timer belongs to the wheel that first set it, and must not be copied afterwards.
type Timer[V any] struct {
	Value V // the owner's, for fire

	at         tick
	in         *list[V] // nil if it is not armed
	prev, next *Timer[V]
}

// At returns the second at which the timer is armed.
func (t *Timer[V]) At() (at int64, ok bool) {
	if t.in == nil {
		return 0, false
	}
	return t.at.second(), true
}

// Wheel arms timers. Times are seconds since 1970, any int64.
//
// Set, Remove, At and Len take constant time. A Wheel is not safe for concurrent use.
type Wheel[V any] struct {
	now      tick
	armed    int
	earliest tick // of all armed; never if it has to be searched

	slots    [levels * digits]list[V] // see slot.go
	levels   uint16                   // bit l: occupied[l] is not zero
	occupied [levels]uint64           // bit d of level l is set if slots[64l+d] has timers

	late      list[V] // set since the last Advance, at a second that had passed
	firing    list[V] // due in this Advance, in order
	advancing bool
}

// New returns an empty wheel whose time is now.
func New[V any](now int64) *Wheel[V] { return &Wheel[V]{now: tickOf(now), earliest: never} }

// Len returns the number of armed timers.
func (w *Wheel[V]) Len() int { return w.armed }

// Set arms t at the second at. A timer that is armed already is moved, earlier
// or later, and counts as set last among those of its second even if the
// second is the same.
//
// The next Advance fires a timer whose time is not after the wheel's.
func (w *Wheel[V]) Set(t *Timer[V], at int64) {
	w.Remove(t)
	t.at = tickOf(at)
	w.armed++
	if w.earliest != never {
		w.earliest = min(w.earliest, t.at)
	}
	if t.at <= w.now {
		w.late.add(t)
	} else {
		w.place(t)
	}
}

// Remove disarms t, if it is armed.
func (w *Wheel[V]) Remove(t *Timer[V]) {
	if t.in == nil {
		return
	}
	if t.at == w.earliest {
		w.earliest = never
	}
	w.armed--
	t.in.remove(t)
}

// Next returns the earliest second at which a timer is armed, even if it has
// passed. It takes constant time, or after that timer was moved or removed time linear
// in the number of timers in one slot.
func (w *Wheel[V]) Next() (at int64, ok bool) {
	if w.armed == 0 {
		return 0, false
	}
	if w.earliest == never {
		w.earliest = min(w.firing.earliest(), w.late.earliest())
		if slot, _, _ := w.lowest(); slot != nil {
			w.earliest = min(w.earliest, slot.earliest())
		}
	}
	return w.earliest.second(), true
}

// Advance moves the wheel's time to now, disarms every timer armed at now or
// before and calls fire for each, in the order of at, and within one second in the
// order of the last Set. A now before the wheel's time does nothing; the same now
// fires the timers set since at seconds already past.
//
// A timer is disarmed when fire is called for it. fire may call any method but
// Advance, which panics:
//
//   - a timer set at now or before waits for the next Advance, so that Advance
//     ends; that includes timers of this call that have not fired yet;
//   - a timer removed, or set to a later time, before it fires does not fire.
//
// If fire panics, the timers that have not fired stay armed.
//
// The cost depends on the occupied slots passed, not on the time: a timer moves
// down at most once per level, ten times in all, five within a year.
func (w *Wheel[V]) Advance(now int64, fire func(t *Timer[V], at int64)) {
	if w.advancing {
		panic("expiry: Advance called from within fire")
	}
	if tickOf(now) < w.now {
		return
	}
	w.collect(tickOf(now))
	w.advancing = true
	defer func() { w.advancing = false }()
	for t := w.firing.first; t != nil; t = w.firing.first {
		w.Remove(t)
		fire(t, t.at.second())
	}
}

// collect moves the wheel's time to now and all due timers into firing.
func (w *Wheel[V]) collect(now tick) {
	if w.late.first != nil {
		past := slices.AppendSeq(slices.Collect(w.firing.take()), w.late.take()) // firing: left by a panic
		slices.SortStableFunc(past, func(a, b *Timer[V]) int { return cmp.Compare(a.at, b.at) })
		for _, t := range past {
			w.firing.add(t)
		}
	}
	for {
		slot, level, start := w.lowest()
		if slot == nil || start > now {
			break
		}
		// No timer is before start, so the time can jump there. Slots of this level and
		// above stay right; this slot's timers move to lower levels.
		w.now = start
		for t := range slot.take() {
			if level > 0 {
				w.place(t)
			} else {
				w.firing.add(t)
			}
		}
	}
	w.now = now // for the same reason
}

// tick is a second as an unsigned number in the same order, so that its base-64
// digits are slots.
type tick uint64

func tickOf(second int64) tick { return tick(second) ^ 1<<63 }
func (t tick) second() int64   { return int64(t ^ 1<<63) }

const never tick = math.MaxUint64 // also the last second there is
