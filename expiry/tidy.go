package expiry

// tidy bounds the entries that moved and removed timers leave. It renews all entries
// once more than half may be stale, not counting one almost empty chunk per slot.
func (w *Wheel[V]) tidy() {
	if w.chunks*chunkSize > 2*w.armed+len(w.slots)*chunkSize {
		w.renew()
	}
}

// renew drops all entries and makes one for each armed timer.
func (w *Wheel[V]) renew() {
	timers := make([]*Timer[V], 0, w.armed)
	keep := func(l *list[V]) {
		for batch := range w.take(l) {
			for _, e := range batch {
				if e.current() {
					e.timer.filed = 0 // drops another entry of the same second
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
