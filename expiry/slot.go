package expiry

import "math/bits"

// A slot of level l spans 64^l seconds. The level of a second is the highest
// base-64 digit in which it differs from the wheel's time, and its slot there
// is that digit. Hence, always:
//
//   - every second of a lower level comes before every one of a higher level,
//     and within a level slots are in order of time: the earliest entry is in
//     the lowest slot of the lowest occupied level;
//   - a slot of level 0 is one second.
//
// Eleven levels have a digit for each bit of an int64, so nothing is beyond
// them.
const (
	digitBits = 6
	digits    = 1 << digitBits
	levels    = (64 + digitBits - 1) / digitBits
)

// file files t in its slot.
func (w *Wheel[V]) file(t *Timer[V]) {
	t.filed = t.at
	w.place(t, t.at)
}

// place puts an entry into the slot of the second at, which must not be before the
// wheel's time.
func (w *Wheel[V]) place(t *Timer[V], at tick) {
	level := uint(bits.Len64(uint64(at^w.now)|(digits-1))-1) / digitBits
	digit := uint(at>>(level*digitBits)) % digits
	w.occupied[level] |= 1 << digit
	w.levels |= 1 << level
	slot := &w.slots[level*digits+digit]
	if slot.room == 0 {
		w.grow(slot)
	}
	slot.add(t, at)
}

// lowest returns the lowest occupied slot and the first second of its span.
func (w *Wheel[V]) lowest() (level, digit int, start tick, ok bool) {
	if w.levels == 0 {
		return 0, 0, 0, false
	}
	level = bits.TrailingZeros16(w.levels)
	digit = bits.TrailingZeros64(w.occupied[level])
	shift := level * digitBits
	above := w.now &^ (1<<(shift+digitBits) - 1)
	return level, digit, above | tick(digit)<<shift, true
}

// vacate marks a slot as empty and returns it, to be taken.
func (w *Wheel[V]) vacate(level, digit int) *list[V] {
	w.occupied[level] &^= 1 << digit
	if w.occupied[level] == 0 {
		w.levels &^= 1 << level
	}
	return &w.slots[level*digits+digit]
}
