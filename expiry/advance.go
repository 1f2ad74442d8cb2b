package expiry

import (
	"cmp"
	"math"
	"slices"
)

// Next returns the earliest second at which a key is armed, exactly, even if it
// has passed.
//
// It takes constant time, but for one case: if the earliest key was moved or
// removed and nothing else is due in the same 64 seconds of the clock, Next
// looks once at each key of the next occupied slot.
func (w *Wheel[K]) Next() (at int64, ok bool) {
	if w.rows&1 == 0 {
		slot, _, ok := w.lowest()
		if !ok {
			return 0, false
		}
		return w.earliest(slot), true
	}
	at = math.MaxInt64
	if w.entry(late).next != late {
		at = w.earliest(late)
	}
	if i := w.entry(firing).next; i != firing {
		at = min(at, w.entry(i).at)
	}
	return at, true
}

// Advance moves the wheel's time to now, disarms every key armed at now or
// before and calls fire for each: in order of at, and within one second in the
// order in which the keys were last set. A now before the wheel's time does
// nothing; the same now fires what was set since at seconds already past.
//
// A key is disarmed when fire is called for it. Meanwhile fire may call
// anything but Advance, which panics:
//
//   - a Set at now or before waits for the next Advance, so that one call
//     always ends; this holds as well for a key whose turn in this call was
//     still to come;
//   - a key that is removed or set to a later time before its turn is not fired.
//
// If fire panics, the keys whose turn was still to come stay armed.
//
// The cost is that of the occupied slots passed, however long the time: a key
// moves down at most once a level, ten times in all, five within a year.
func (w *Wheel[K]) Advance(now int64, fire func(key K, at int64)) {
	if w.advancing {
		panic("expiry: Advance called from within fire")
	}
	if now < w.now {
		return
	}
	w.collect(now)
	if w.entry(firing).next == firing {
		return
	}
	w.advancing = true
	defer func() { w.advancing = false }()
	for {
		i := w.entry(firing).next
		if i == firing {
			return
		}
		e := w.entry(i)
		key, at := e.key, e.at
		w.unlink(i)
		w.release(i)
		fire(key, at)
	}
}

// collect moves the wheel's time to now and all that is due into firing.
func (w *Wheel[K]) collect(now int64) {
	w.splice(late, firing) // firing holds what a panic left over
	w.sortFiring()
	for {
		slot, start, ok := w.lowest()
		if !ok || start > now {
			break
		}
		// Nothing is armed before start, so time may go there at once; the slots
		// of this level and above stay right, and this one's entries get finer.
		w.now = start
		if slot>>slotBits == 1 {
			w.splice(slot, firing)
		} else {
			w.cascade(slot)
		}
	}
	w.now = now // for the same reason
}

// cascade distributes the entries of slot, at whose first second the wheel is,
// over the levels below.
func (w *Wheel[K]) cascade(slot int32) {
	i := w.entry(slot).next
	w.reset(slot)
	w.vacate(slot)
	for i != slot {
		next := w.entry(i).next
		w.link(i, w.slotAhead(w.entry(i).at))
		i = next
	}
}

// sortFiring sorts firing by second, keeping the order within one.
func (w *Wheel[K]) sortFiring() {
	w.scratch = w.scratch[:0]
	sorted, last := true, int64(math.MinInt64)
	for i := w.entry(firing).next; i != firing; i = w.entry(i).next {
		w.scratch = append(w.scratch, i)
		at := w.entry(i).at
		sorted = sorted && last <= at
		last = at
	}
	if sorted {
		return
	}
	slices.SortStableFunc(w.scratch, func(a, b int32) int {
		return cmp.Compare(w.entry(a).at, w.entry(b).at)
	})
	w.reset(firing)
	for _, i := range w.scratch {
		w.link(i, firing)
	}
}
