package expiry

import (
	"iter"
	"math/bits"
)

// A slot of level l spans 64^l seconds. The level of a second is the highest
// base-64 digit in which it differs from the wheel's time, and its slot there
// is that digit. Hence, always:
//
//   - every second of a lower level comes before every one of a higher level,
//     and within a level slots are in order of time: the earliest timer is in
//     the lowest slot of the lowest occupied level;
//   - timers of one second are in one slot, in the order of Set, since slots
//     are emptied in that order too;
//   - a slot of level 0 is one second.
//
// Eleven levels have a digit for each bit of an int64, so nothing is beyond
// them.
const (
	digitBits = 6
	digits    = 1 << digitBits
	levels    = (64 + digitBits - 1) / digitBits
)

// place appends t to the slot of its second, which must not be before the wheel's time.
func (w *Wheel[V]) place(t *Timer[V]) {
	level := uint(bits.Len64(uint64(t.at^w.now)|(digits-1))-1) / digitBits
	digit := uint(t.at>>(level*digitBits)) % digits
	w.occupied[level] |= 1 << digit
	w.levels |= 1 << level
	w.slots[level*digits+digit].add(t)
}

// lowest returns the lowest slot with timers, nil if there is none, its level and the
// first second of its span.
func (w *Wheel[V]) lowest() (slot *list[V], level int, start tick) {
	for w.levels != 0 {
		level = bits.TrailingZeros16(w.levels)
		digit := bits.TrailingZeros64(w.occupied[level])
		if slot = &w.slots[level*digits+digit]; slot.first != nil {
			shift := level * digitBits
			above := w.now &^ (1<<(shift+digitBits) - 1)
			return slot, level, above | tick(digit)<<shift
		}
		w.occupied[level] &^= 1 << digit
		if w.occupied[level] == 0 {
			w.levels &^= 1 << level
		}
	}
	return nil, 0, 0
}

// list is a queue of timers, linked through them.
type list[V any] struct{ first, last *Timer[V] }

func (l *list[V]) add(t *Timer[V]) {
	t.in, t.prev, t.next = l, l.last, nil
	if l.last == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
}

func (l *list[V]) remove(t *Timer[V]) {
	if t.prev == nil {
		l.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.in, t.prev, t.next = nil, nil, nil
}

// take empties l and yields its timers; the consumer may add them to another list.
func (l *list[V]) take() iter.Seq[*Timer[V]] {
	return func(yield func(*Timer[V]) bool) {
		for t := l.first; t != nil; t = l.first {
			l.remove(t)
			yield(t)
		}
	}
}

// earliest returns the earliest second in l, never if it is empty, in linear time.
func (l *list[V]) earliest() tick {
	at := never
	for t := l.first; t != nil; t = t.next {
		at = min(at, t.at)
	}
	return at
}
