package expiry

import (
	"cmp"
	"slices"
)

// Next returns the earliest second at which a timer is armed, even if it has
// passed. After timers were moved later or removed it may return an earlier
// second, at which nothing fires; Advance to that second moves it on. It never
// returns a later one. It takes constant time.
func (w *Wheel[V]) Next() (at int64, ok bool) {
	if w.armed == 0 {
		return 0, false
	}
	earliest := never
	if level, digit, _, ok := w.lowest(); ok {
		earliest = w.slots[level*digits+digit].earliest
	}
	if w.inbox.first != nil {
		earliest = min(earliest, w.inbox.earliest)
	}
	for ; w.next < len(w.firing); w.next++ {
		if e := w.firing[w.next]; e.timer.set == e.key {
			earliest = min(earliest, e.timer.at)
			break
		}
	}
	return earliest.second(), true
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
// The cost depends on the occupied slots passed, not on the time: an entry moves
// down at most once per level, ten times in all, five within a year.
func (w *Wheel[V]) Advance(now int64, fire func(t *Timer[V], at int64)) {
	if w.advancing {
		panic("expiry: Advance called from within fire")
	}
	if tickOf(now) < w.now {
		return
	}
	w.collect(tickOf(now))
	if len(w.firing) == 0 {
		return
	}
	w.advancing = true
	defer func() { w.advancing = false }()
	for w.next < len(w.firing) {
		e := w.firing[w.next]
		w.next++
		if e.timer.set == e.key {
			e.timer.set = 0
			w.armed--
			fire(e.timer, e.timer.at.second())
		}
	}
	clear(w.firing)
	w.firing, w.next = w.firing[:0], 0
}

// collect moves the wheel's time to now and all due entries into firing.
func (w *Wheel[V]) collect(now tick) {
	w.collectInbox()
	for {
		level, digit, start, ok := w.lowest()
		if !ok || start > now {
			break
		}
		// No entry is before start, so the time can jump there. Slots of this level and
		// above stay right; this slot's entries move to lower levels.
		w.now = start
		if slot := w.vacate(level, digit); level > 0 {
			w.cascade(slot, level)
		} else {
			w.collectSecond(slot)
		}
	}
	w.now = now // for the same reason
}

// collectInbox files the inbox into slots, and collects its timers that are due and those
// that a panic left over; all collected are at or before the wheel's time.
func (w *Wheel[V]) collectInbox() {
	if len(w.firing) == 0 && w.inbox.first == nil {
		return
	}
	w.firing, w.next = slices.Delete(w.firing, 0, w.next), 0
	for batch := range w.take(&w.inbox) {
		for _, e := range batch {
			if tick(e.key) > w.now {
				w.place(e.timer, tick(e.key))
			} else {
				w.look(e)
			}
		}
	}
	if len(w.firing) > 1 {
		slices.SortFunc(w.firing, func(a, b entry[V]) int {
			return cmp.Or(cmp.Compare(a.timer.at, b.timer.at), cmp.Compare(a.key, b.key))
		})
	}
}

// collectSecond collects the slot of the wheel's current second.
func (w *Wheel[V]) collectSecond(slot *list[V]) {
	before := len(w.firing)
	for batch := range w.take(slot) {
		for _, e := range batch {
			w.look(e)
		}
	}
	w.sortBySet(w.firing[before:])
}

// cascade distributes a slot over the levels below. The wheel stands at the slot's
// first second.
//
// From level 1, at most a minute early, it reads the timers: the cache misses of a
// minute cost less together, and most seconds without timers left are dropped before
// Next returns them.
func (w *Wheel[V]) cascade(slot *list[V], level int) {
	for batch := range w.take(slot) {
		if level > 1 {
			for _, e := range batch {
				w.place(e.timer, tick(e.key))
			}
			continue
		}
		for _, e := range batch {
			_ = *e.timer // a load that no branch waits for
		}
		for _, e := range batch {
			if e.current() {
				w.file(e.timer)
			}
		}
	}
}

// look collects the timer of an entry whose second has come, unless it was moved
// later.
func (w *Wheel[V]) look(e entry[V]) {
	t := e.timer
	switch {
	case !e.current():
	case t.at > w.now:
		w.file(t)
	default:
		t.filed = 0
		w.firing = append(w.firing, entry[V]{t, t.set})
	}
}
