package expiry

import "iter"

// entry refers to a timer. Its key suffices to move it down the levels: reading the
// timer is a cache miss.
type entry[V any] struct {
	timer *Timer[V]
	key   uint64 // Timer.filed when the entry was made; in Wheel.firing, Timer.set
}

// current reports whether e is the entry of an armed timer.
func (e entry[V]) current() bool {
	if uint64(e.timer.filed) != e.key {
		return false
	}
	if e.timer.set == 0 {
		e.timer.filed = 0
		return false
	}
	return true
}

// chunk is 2 KB of a list.
type chunk[V any] struct {
	next    *chunk[V]
	entries [chunkSize]entry[V]
}

const chunkSize = 127

// list is a queue of entries that is taken as a whole.
type list[V any] struct {
	first, last *chunk[V]
	room        int  // free entries in last
	earliest    tick // of the entries' keys
}

// add appends to l, which has room.
func (l *list[V]) add(t *Timer[V], at tick) {
	l.last.entries[chunkSize-l.room] = entry[V]{t, uint64(at)}
	l.room--
	l.earliest = min(l.earliest, at)
}

// grow makes room in l.
func (w *Wheel[V]) grow(l *list[V]) {
	c := w.free
	if c != nil {
		w.free, c.next = c.next, nil
	} else {
		c = new(chunk[V])
	}
	if l.first == nil {
		l.first, l.earliest = c, never
	} else {
		l.last.next = c
	}
	l.last, l.room = c, chunkSize
	w.chunks++
}

// take empties l and yields its entries, a chunk at a time. The consumer may add to
// l and must not break.
func (w *Wheel[V]) take(l *list[V]) iter.Seq[[]entry[V]] {
	old := *l
	*l = list[V]{}
	return func(yield func([]entry[V]) bool) {
		for c := old.first; c != nil; {
			batch := c.entries[:]
			if c == old.last {
				batch = batch[:chunkSize-old.room]
			}
			yield(batch)
			clear(batch)
			w.chunks--
			next := c.next
			c.next, w.free = w.free, c
			c = next
		}
	}
}
