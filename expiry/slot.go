package expiry

import (
	"math"
	"math/bits"
)

// A slot of level l spans 64^l seconds. The level of a second is the highest
// base-64 digit in which it differs from the wheel's time, and its slot there
// is that digit. Hence, always:
//
//   - every second of a lower level comes before every one of a higher level,
//     and within a level slots are in order of time: the earliest entry is in
//     the lowest slot of the lowest occupied level;
//   - a slot of level 0 is one second;
//   - entries of one second share a slot, and lists are moved from first to
//     last, so they stay in the order in which they were set.
//
// Eleven levels have a digit for each bit of an int64, so nothing is beyond
// them. Row 0 is for what is due, level l is row l+1.
const (
	slotBits   = 6
	levels     = (64 + slotBits - 1) / slotBits
	rows       = levels + 1
	firstEntry = rows << slotBits

	late   int32 = 0 // set at a second that had passed already
	firing int32 = 1 // due in the current Advance, in order
)

// digits returns at as an unsigned number in the same order.
func digits(at int64) uint64 { return uint64(at) ^ 1<<63 }

// slot returns the slot for the second at.
func (w *Wheel[K]) slot(at int64) int32 {
	if at <= w.now {
		return late
	}
	return w.slotAhead(at)
}

// slotAhead is slot for a second that is not before the wheel's time.
func (w *Wheel[K]) slotAhead(at int64) int32 {
	differ := uint64(at ^ w.now)
	level := uint(bits.Len64(differ|(1<<slotBits-1))-1) / slotBits
	digit := digits(at) >> (level * slotBits) & (1<<slotBits - 1)
	return int32(level+1)<<slotBits | int32(digit)
}

// lowest returns the lowest occupied slot of the levels, and the first second
// of its span.
func (w *Wheel[K]) lowest() (slot int32, start int64, ok bool) {
	ahead := w.rows &^ 1
	if ahead == 0 {
		return 0, 0, false
	}
	row := bits.TrailingZeros16(ahead)
	digit := bits.TrailingZeros64(w.occupied[row])
	shift := (row - 1) * slotBits
	above := digits(w.now) &^ (1<<(shift+slotBits) - 1)
	return int32(row<<slotBits | digit), int64(above|uint64(digit)<<shift) ^ math.MinInt64, true
}

// link appends the entry i to slot.
func (w *Wheel[K]) link(i, slot int32) {
	head, n := w.entry(slot), w.entry(i)
	row, bit := slot>>slotBits, uint64(1)<<(slot&63)
	if head.next == slot {
		w.occupied[row] |= bit
		w.rows |= 1 << row
		head.at = math.MaxInt64
	}
	if n.at <= head.at {
		head.at = n.at
		w.stale[row] &^= bit
	}
	n.prev, n.next = head.prev, slot
	w.entry(head.prev).next = i
	head.prev = i
}

// unlink takes the entry i out of its slot.
func (w *Wheel[K]) unlink(i int32) {
	n := w.entry(i)
	w.entry(n.prev).next = n.next
	w.entry(n.next).prev = n.prev
	if n.prev == n.next { // the head, alone
		w.vacate(n.prev)
		return
	}
	// An entry of firing is taken for one of late: that costs a look at most.
	if slot := w.slot(n.at); w.entry(slot).at == n.at {
		row := slot >> slotBits
		w.stale[row] |= 1 << (slot & 63) & w.occupied[row]
	}
}

// splice appends all of slot from to slot to, which keeps no earliest second.
func (w *Wheel[K]) splice(from, to int32) {
	src, dst := w.entry(from), w.entry(to)
	if src.next == from {
		return
	}
	w.entry(src.next).prev = dst.prev
	w.entry(dst.prev).next = src.next
	w.entry(src.prev).next = to
	dst.prev = src.prev
	w.occupied[to>>slotBits] |= 1 << (to & 63)
	w.rows |= 1 << (to >> slotBits)
	w.reset(from)
	w.vacate(from)
}

// reset makes slot an empty list.
func (w *Wheel[K]) reset(slot int32) {
	w.entry(slot).prev, w.entry(slot).next = slot, slot
}

// vacate notes that slot is empty.
func (w *Wheel[K]) vacate(slot int32) {
	row, bit := slot>>slotBits, uint64(1)<<(slot&63)
	w.stale[row] &^= bit
	w.occupied[row] &^= bit
	if w.occupied[row] == 0 {
		w.rows &^= 1 << row
	}
}

// earliest returns the earliest second in slot, which is not empty.
func (w *Wheel[K]) earliest(slot int32) int64 {
	head := w.entry(slot)
	row, bit := slot>>slotBits, uint64(1)<<(slot&63)
	if w.stale[row]&bit == 0 {
		return head.at
	}
	at := int64(math.MaxInt64)
	// Nothing is earlier than the stale second; another may be as early.
	for i := head.next; i != slot && at != head.at; i = w.entry(i).next {
		at = min(at, w.entry(i).at)
	}
	head.at = at
	w.stale[row] &^= bit
	return at
}
