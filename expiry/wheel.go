package expiry

// Wheel arms keys, each at one second. Times are whole seconds since 1970; any
// int64 will do, there is no horizon.
//
// A key stands for a queue of due documents and is armed at its next non-empty
// second only, so a wheel's memory is bound by the number of queues. With keys
// of 16 bytes it is 49 bytes a key, measured at a million (container/heap and a
// map take 97), and 32 KB to begin with. What fired keys leave behind is used
// again, but not given back.
//
// Set and Remove take constant time, amortised, and At and Len constant time.
// A Wheel is not safe for concurrent use.
type Wheel[K comparable] struct {
	now   int64
	index index

	pages []*[pageSize]entry[K] // the heads of the slots, then the keys
	fresh int32                 // the first entry never used
	free  int32                 // the first released one, linked by next; or 0

	rows     uint16       // bit r: occupied[r] is not zero
	occupied [rows]uint64 // bit s of row r: slot 64r+s is not empty
	stale    [rows]uint64 // bit s of row r: the head's at may be too early

	advancing bool
	scratch   []int32 // for sorting
}

// New returns an empty wheel whose time is now.
func New[K comparable](now int64) *Wheel[K] {
	w := &Wheel[K]{now: now, index: newIndex(), fresh: firstEntry}
	w.pages = append(w.pages, new([pageSize]entry[K]))
	for slot := range int32(firstEntry) {
		w.reset(slot)
	}
	return w
}

// Set arms key at the second at. A key that is armed already is moved, earlier
// or later, and counts as set last among those of its second even if the
// second is the same.
//
// A time that is not after the wheel's own is kept as it is; the next Advance
// fires it.
func (w *Wheel[K]) Set(key K, at int64) {
	i, hash := w.find(key)
	if i != 0 {
		w.unlink(i)
	} else {
		i = w.take(key)
		w.index.insert(i, hash)
	}
	w.entry(i).at = at
	w.link(i, w.slot(at))
}

// Remove disarms key, if it is armed.
func (w *Wheel[K]) Remove(key K) {
	if i, _ := w.find(key); i != 0 {
		w.unlink(i)
		w.release(i)
	}
}

// At returns the second at which key is armed.
func (w *Wheel[K]) At(key K) (at int64, ok bool) {
	i, _ := w.find(key)
	if i == 0 {
		return 0, false
	}
	return w.entry(i).at, true
}

// Len returns the number of armed keys.
func (w *Wheel[K]) Len() int { return w.index.used }
