package projections

import "bytes"

// Entries iterates over the entries of an index in the order of key and id.
type Entries struct{ rows }

// Entries returns an iterator over the entries in one space of an index with keys in
// [lower, upper); nil is no bound. It is unpositioned, and costs nothing until it
// moves.
//
// Entries sort by key because no key is a prefix of another: use KeyAfter for the
// bound after all entries of a key, not the key and one more byte.
//
// A bound longer than MaxValueKeyBytes includes all entries that equal its cut, since
// their values may be on either side of it.
func (v *View) Entries(x Index, space Space, lower, upper []byte) *Entries {
	prefix := indexSpaceKey(nil, v.collection.Incarnation, x.number, space)
	bound := func(key []byte) []byte {
		return append(prefix[:len(prefix):len(prefix)], key[:min(len(key), MaxValueKeyBytes)]...)
	}
	r := rows{view: v, prefix: prefix, lower: bound(lower), upper: bound(upper)}
	if upper == nil || len(upper) > MaxValueKeyBytes {
		r.upper = successor(r.upper)
	}
	if bytes.Compare(r.lower, r.upper) > 0 {
		r.upper = r.lower // empty; Pebble does not accept upper < lower
	}
	return &Entries{r}
}

// KeyAfter returns the bound after all entries with the key or a text prefix:
// [key, KeyAfter(key)) are the entries of a value or prefix.
func KeyAfter(key []byte) []byte { return successor(key) }

// SeekGE moves to the first entry that is not before the given one. Key has at
// most MaxValueKeyBytes.
func (e *Entries) SeekGE(key, id []byte) bool {
	return e.open() && e.it.SeekGE(e.key(key, id))
}

// SeekLT moves to the last entry that is before the given one. Key has at most
// MaxValueKeyBytes.
func (e *Entries) SeekLT(key, id []byte) bool {
	return e.open() && e.it.SeekLT(e.key(key, id))
}

// Entry returns the entry; its Key and ID are valid until the iterator moves
// and must not be changed.
func (e *Entries) Entry() (IndexEntry, error) {
	value, err := e.it.ValueAndErr()
	if err != nil {
		return IndexEntry{}, err
	}
	return decodeIndexEntry(e.it.Key()[indexSpaceBytes:], value)
}
