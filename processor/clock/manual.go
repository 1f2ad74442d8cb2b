package clock

import "time"

// NewManual returns a Timekeeper whose owner moves it with Set. It shows at, and stands still
// between moves, or runs with the machine's elapsed time. It has no guard: it trusts every
// time that it is set to. It outlives the processors that use it, one after another.
func NewManual(at time.Time, runs bool) *Timekeeper {
	k := &Timekeeper{clock: func() (time.Time, time.Duration) { return time.Time{}, 0 }, runs: runs}
	if runs {
		k.clock = GoClock()
	}
	at = time.UnixMilli(at.UnixMilli())
	k.now.Store(&instant{wall: at, floor: at})
	return k
}

// Manual reports whether the clock has an owner who moves it.
func (k *Timekeeper) Manual() bool { return k.guard == nil }

// Stands reports whether the clock shows the same time until it is moved.
func (k *Timekeeper) Stands() bool { return !k.runs }

// Set moves a manual clock to a time in Unix ms, unless it is past that, and returns the
// time. A clock that runs goes on from there.
func (k *Timekeeper) Set(to int64) (now int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now = k.Millis(); now >= to {
		return now
	}
	_, elapsed := k.clock()
	wall := time.UnixMilli(to)
	k.now.Store(&instant{wall: wall, elapsed: elapsed, floor: wall})
	return to
}
