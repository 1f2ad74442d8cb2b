package expiry

import (
	"math/rand/v2"
	"testing"
)

func TestIndexAgainstMap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	w := New[int](0)
	want := map[int]int64{}
	for step := range 200_000 {
		// Full and empty by turns, so that the index grows and thins out.
		key := rnd.IntN(3000)
		if rnd.IntN(4) > 0 == (step/20_000%2 == 0) {
			at := rnd.Int64N(1 << 20)
			w.Set(key, at)
			want[key] = at
		} else {
			w.Remove(key)
			delete(want, key)
		}
		if step%5000 > 0 {
			continue
		}
		check(t, w)
		for key := range 3000 {
			at, ok := w.At(key)
			if wantAt, wantOK := want[key]; at != wantAt || ok != wantOK {
				t.Fatalf("step %d, key %d: %d, %v; want %d, %v", step, key, at, ok, wantAt, wantOK)
			}
		}
	}
}

// Hashes that collide and wrap around the end of the table.
func TestIndexRemoveKeepsProbing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 2000 {
		x := newIndex()
		hashes := map[int32]uint32{}
		for i := int32(1); i <= minCells/4*3; i++ {
			hashes[i] = []uint32{0, 1, 14, 15, 31}[rnd.IntN(5)]
			x.insert(i, hashes[i])
		}
		for _, i := range rnd.Perm(len(hashes)) {
			x.remove(int32(i+1), hashes[int32(i+1)])
			delete(hashes, int32(i+1))
			for left, hash := range hashes {
				at := hash % minCells
				for x.cells[at].entry != left {
					if x.cells[at].entry == 0 {
						t.Fatalf("entry %d with hash %d is lost in %v", left, hash, x.cells)
					}
					at = (at + 1) % minCells
				}
			}
		}
		if x.used != 0 || len(x.cells) != minCells {
			t.Fatalf("%d of %d cells used", x.used, len(x.cells))
		}
	}
}
