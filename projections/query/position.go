package query

import (
	"bytes"
	"encoding/binary"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// position is a document's position in the order of a query: its sort key, then its
// id. Positions compare by their bytes.
//
// The sort key joins the keys of the values at the paths of the orderBy, those of
// descending paths inverted. Since no key is a prefix of another, it sorts by the
// values in turn, and then by id.
type position struct {
	key, id []byte
}

func (p position) compare(q position) int {
	if c := bytes.Compare(p.key, q.key); c != 0 {
		return c
	}
	return bytes.Compare(p.id, q.id)
}

// clone copies a position into one allocation.
func (p position) clone() position {
	both := append(append(make([]byte, 0, len(p.key)+len(p.id)), p.key...), p.id...)
	return position{both[:len(p.key):len(p.key)], both[len(p.key):]}
}

// from returns the id of the position, "" for the beginning.
func (p *position) from() schema.DocumentID {
	if p == nil {
		return ""
	}
	return schema.DocumentID(p.id)
}

// sorter makes sort keys.
type sorter struct {
	desc  []bool
	paths *values.Paths
	found values.Found
	key   []byte
}

// newSorter returns a sorter of the query's order; it reports the bytes that it skips to
// worked.
func newSorter(orderBy []order, worked func(bytes int)) *sorter {
	s := &sorter{}
	s.found.Passed = worked
	var pointers []values.Pointer
	for _, o := range orderBy {
		pointers = append(pointers, o.path)
		s.desc = append(s.desc, o.desc)
	}
	s.paths = values.NewPaths(pointers)
	return s
}

// maxSortKey bounds a sort key, which is part of the cursor. With maxLimit it bounds the
// memory of a sort, to 64 MiB.
const maxSortKey = 64 << 10

// of returns the sort key of a document, valid until the next one, or
// errSortKey.
func (s *sorter) of(r projections.Record) ([]byte, error) {
	s.key = s.key[:0]
	if len(s.desc) == 0 {
		return s.key, nil
	}
	s.paths.Find(r.Body, r.TS, uint64(r.Version), &s.found)
	for i, v := range s.found.Values {
		start := len(s.key)
		var whole bool
		if s.key, whole = values.AppendKeyPrefix(s.key, v, maxSortKey-start); !whole {
			return nil, errSortKey
		}
		if s.desc[i] {
			turn(s.key[start:])
		}
	}
	return s.key, nil
}

// turn inverts all bits of a key, and so its order.
func turn(key []byte) {
	for i := range key {
		key[i] = ^key[i]
	}
}

// encode appends a position as a cursor holds it.
func (p position) encode(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(p.key)))
	return append(append(dst, p.key...), p.id...)
}

// encodedSize returns the bytes that encode appends.
func (p position) encodedSize() int {
	var length [binary.MaxVarintLen64]byte
	return binary.PutUvarint(length[:], uint64(len(p.key))) + len(p.key) + len(p.id)
}

// decodePosition reads what encode wrote; the result shares its memory.
func decodePosition(data []byte) (p position, ok bool) {
	length, n := binary.Uvarint(data)
	if n <= 0 || length > uint64(len(data)-n) {
		return position{}, false
	}
	data = data[n:]
	return position{data[:length], data[length:]}, true
}
