package expiry

// tidy bounds what moved and removed timers leave behind: once more than half
// of the entries may be no timer's, not counting a chunk for each slot that
// may be all but empty, it makes new ones.
func (w *Wheel[V]) tidy() {
	if w.chunks*chunkSize > 2*w.armed+len(w.slots)*chunkSize {
		w.renew()
	}
}

// renew throws away all entries and makes one for each timer that had any.
func (w *Wheel[V]) renew() {
	timers := make([]*Timer[V], 0, w.armed)
	keep := func(l *list[V]) {
		for batch := range w.take(l) {
			for _, e := range batch {
				if e.current() {
					e.timer.filed = 0 // it may have another of the same second
					timers = append(timers, e.timer)
				}
			}
		}
	}
	keep(&w.inbox)
	for level, digit, _, ok := w.lowest(); ok; level, digit, _, ok = w.lowest() {
		keep(w.vacate(level, digit))
	}
	for _, t := range timers {
		w.post(t)
	}
}
