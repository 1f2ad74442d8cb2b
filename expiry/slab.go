package expiry

import "hash/maphash"

// entry is an element of a circular, doubly linked list: an armed key, or the
// head of the slot it is in. Links are numbers of entries, not pointers: they
// take half the space, and unless K has pointers the garbage collector has
// nothing to trace.
type entry[K comparable] struct {
	at         int64 // of a head: the earliest in its slot, see Wheel.stale
	prev, next int32
	key        K
}

// Entries are kept in pages, since a slice would be copied as it grows. The
// first has the heads and room for 256 keys.
const (
	pageBits = 10
	pageSize = 1 << pageBits
)

// entry returns the entry i.
func (w *Wheel[K]) entry(i int32) *entry[K] {
	return &w.pages[i>>pageBits][i&(pageSize-1)]
}

// take returns an unlinked entry for key.
func (w *Wheel[K]) take(key K) int32 {
	i := w.free
	if i != 0 {
		w.free = w.entry(i).next
	} else {
		i = w.fresh
		if int(i>>pageBits) == len(w.pages) {
			w.pages = append(w.pages, new([pageSize]entry[K]))
		}
		w.fresh++
	}
	w.entry(i).key = key
	return i
}

// release forgets the key of the unlinked entry i and keeps the entry for the
// next take.
func (w *Wheel[K]) release(i int32) {
	e := w.entry(i)
	w.index.remove(i, uint32(maphash.Comparable(w.index.seed, e.key)))
	var zero K
	e.key = zero // or a string would be retained
	e.next = w.free
	w.free = i
}
