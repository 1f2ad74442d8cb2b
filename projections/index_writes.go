package projections

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lapsedb/lapse/schema"
)

// indexer turns documents into changes of index entries. It is scratch memory of
// Fold and Index. It is used under Store.folding alone, and its content does not outlive a
// fold or slice. All folds share its buffers, which grow to what the largest one needed.
type indexer struct {
	before, now entries
	meta, list  []byte

	// writes of one fold, which flush sorts by key: most of the cost of an insertion
	// into the memtable is finding the position, which takes half the time next to the
	// previous one.
	writes []indexWrite
	memory []byte // keys and values
}

// indexWrite sets or deletes an entry.
type indexWrite struct {
	group, head     uint64 // decide most comparisons: the space, and the value's first bytes
	start, mid, end uint32 // key and value in memory; an empty value deletes
	order           uint32
}

// waitingBytes limits the bytes buffered in an indexer.
const waitingBytes = 4 << 20

// clear drops buffered writes, for a fold that failed before flush.
func (x *indexer) clear() { x.writes, x.memory = x.writes[:0], x.memory[:0] }

// replace replaces the entries before by those now, of a document with the given
// Meta. It writes every new entry, also an existing one, since the Meta differs. Both
// lists are sorted, so one pass merges them. A key only in before is deleted, any other is
// set.
func (x *indexer) replace(batch *pebble.Batch, incarnation uint64, id schema.DocumentID, m Meta) error {
	before, now := &x.before, &x.now
	x.meta = appendEntryMeta(x.meta[:0], m)
	for i, j := 0, 0; i < len(before.list) || j < len(now.list); {
		order := 0
		switch {
		case i == len(before.list):
			order = 1
		case j == len(now.list):
			order = -1
		default:
			order = bytes.Compare(before.key(i), now.key(j))
		}
		if order < 0 {
			x.key(incarnation, before.key(i), id)
			i++
			continue
		}
		if order == 0 {
			i++
		}
		key := now.key(j)
		x.key(incarnation, key, id)
		x.memory = appendEntryHead(x.memory, len(key)-(indexSpaceBytes-indexCollectionBytes), now.list[j].whole)
		x.memory = append(x.memory, x.meta...)
		x.writes[len(x.writes)-1].end = uint32(len(x.memory))
		j++
	}
	if len(x.memory) < waitingBytes {
		return nil
	}
	return x.flush(batch)
}

// key begins a write, a deletion until it gets a value.
func (x *indexer) key(incarnation uint64, key []byte, id schema.DocumentID) {
	w := indexWrite{start: uint32(len(x.memory)), order: uint32(len(x.writes))}
	x.memory = append(x.memory, keyIndex)
	x.memory = binary.BigEndian.AppendUint64(x.memory, incarnation)
	x.memory = append(append(x.memory, key...), id...)
	w.mid = uint32(len(x.memory))
	w.end = w.mid
	// Two collections may have the same group; then the keys decide.
	space := key[:indexSpaceBytes-indexCollectionBytes]
	w.group = incarnation<<24 ^ uint64(binary.BigEndian.Uint32(space))<<1 ^ uint64(space[4])
	var head [8]byte
	copy(head[:], key[len(space):])
	w.head = binary.BigEndian.Uint64(head[:])
	x.writes = append(x.writes, w)
}

// flush moves the writes to the batch, only the last one of each entry. It sorts by key
// and then by order, so the last write of a key is the last of its run. group and head are
// compared first, since they are in the struct and need no access to memory.
func (x *indexer) flush(batch *pebble.Batch) error {
	defer x.clear()
	key := func(w *indexWrite) []byte { return x.memory[w.start:w.mid] }
	slices.SortFunc(x.writes, func(a, b indexWrite) int {
		if a.group != b.group {
			return cmp.Compare(a.group, b.group)
		}
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		return cmp.Or(bytes.Compare(key(&a), key(&b)), cmp.Compare(a.order, b.order))
	})
	for i := range x.writes {
		w := &x.writes[i]
		if i+1 < len(x.writes) && w.head == x.writes[i+1].head && bytes.Equal(key(w), key(&x.writes[i+1])) {
			continue
		}
		var err error
		if w.mid == w.end {
			err = batch.Delete(key(w), nil)
		} else {
			err = batch.Set(key(w), x.memory[w.mid:w.end], nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
