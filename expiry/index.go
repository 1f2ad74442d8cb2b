package expiry

import "hash/maphash"

// cell is a place in the index: an entry and the hash of its key. The hash
// spares most looks at keys, and all of them when the index grows.
type cell struct {
	hash  uint32
	entry int32 // 0, which is a slot's head, for none
}

// index finds entries by key: open addressing with linear probing, at most
// three cells in four used, and no tombstones. It does not hold the keys, the
// entries do; a map would hold them a second time.
type index struct {
	seed  maphash.Seed
	cells []cell // a power of two
	used  int
}

const minCells = 16

func newIndex() index {
	return index{seed: maphash.MakeSeed(), cells: make([]cell, minCells)}
}

// find returns the entry of key, or 0, and the hash of key.
func (w *Wheel[K]) find(key K) (i int32, hash uint32) {
	hash = uint32(maphash.Comparable(w.index.seed, key))
	cells := w.index.cells
	mask := uint32(len(cells) - 1)
	for at := hash & mask; ; at = (at + 1) & mask {
		c := cells[at]
		if c.entry == 0 || c.hash == hash && w.entry(c.entry).key == key {
			return c.entry, hash
		}
	}
}

// insert adds the entry i, which it does not have.
func (x *index) insert(i int32, hash uint32) {
	if x.used >= len(x.cells)/4*3 {
		old := x.cells
		x.cells = make([]cell, 2*len(old))
		for _, c := range old {
			if c.entry != 0 {
				x.place(c)
			}
		}
	}
	x.place(cell{hash, i})
	x.used++
}

func (x *index) place(c cell) {
	mask := uint32(len(x.cells) - 1)
	at := c.hash & mask
	for x.cells[at].entry != 0 {
		at = (at + 1) & mask
	}
	x.cells[at] = c
}

// remove takes out the entry i, which it has, and moves up those behind it
// that it kept from their places.
func (x *index) remove(i int32, hash uint32) {
	mask := uint32(len(x.cells) - 1)
	hole := hash & mask
	for x.cells[hole].entry != i {
		hole = (hole + 1) & mask
	}
	for at := (hole + 1) & mask; x.cells[at].entry != 0; at = (at + 1) & mask {
		c := x.cells[at]
		if (at-c.hash)&mask >= (at-hole)&mask { // its place is not after the hole
			x.cells[hole] = c
			hole = at
		}
	}
	x.cells[hole] = cell{}
	x.used--
}
