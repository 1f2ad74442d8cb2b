package projections

import "bytes"

// Entries goes over the entries of an index in the order of their keys and,
// where these are the same, of their ids. It is on an entry after a call that
// moved it and returned true; false means that there is none, or an Error.
type Entries struct {
	rows rows
}

// Entries returns an iterator over the entries in one space of an index whose
// keys are in [lower, upper), where nil is no bound. It is on none yet, and
// costs nothing until it moves.
//
// Entries sort by their keys alone only because no key is the beginning of
// another. So the bound past all entries of a key is KeyAfter, not the key and
// a byte more.
//
// A bound longer than MaxValueKeyBytes takes in all entries that were cut where
// it would have been, since they may be on either side of it.
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
		r.upper = r.lower // nothing, which Pebble wants said in this way
	}
	return &Entries{r}
}

// KeyAfter returns the bound past all entries whose key is the given one or
// begins with it: [key, KeyAfter(key)) is where a value, or a text prefix, is.
func KeyAfter(key []byte) []byte { return successor(key) }

// First moves to the first entry.
func (e *Entries) First() bool { return e.rows.first() }

// Last moves to the last entry.
func (e *Entries) Last() bool { return e.rows.last() }

// Next moves to the next entry, from none yet to the first.
func (e *Entries) Next() bool { return e.rows.next() }

// Prev moves to the entry before, from none yet to the last.
func (e *Entries) Prev() bool { return e.rows.prev() }

// SeekGE moves to the first entry that is not before the given one. Key has at
// most MaxValueKeyBytes.
func (e *Entries) SeekGE(key, id []byte) bool {
	return e.rows.open() && e.rows.it.SeekGE(e.rows.key(key, id))
}

// SeekLT moves to the last entry that is before the given one. Key has at most
// MaxValueKeyBytes.
func (e *Entries) SeekLT(key, id []byte) bool {
	return e.rows.open() && e.rows.it.SeekLT(e.rows.key(key, id))
}

// Entry returns the entry; its Key and ID are valid until the iterator moves
// and must not be changed.
func (e *Entries) Entry() (IndexEntry, error) {
	value, err := e.rows.it.ValueAndErr()
	if err != nil {
		return IndexEntry{}, err
	}
	return decodeIndexEntry(e.rows.it.Key()[indexSpaceBytes:], value)
}

// Error returns why the iterator could not move.
func (e *Entries) Error() error { return e.rows.error() }

// Close ends the iterator, also after an error, and returns that.
func (e *Entries) Close() error { return e.rows.close() }
