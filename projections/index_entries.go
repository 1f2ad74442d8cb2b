package projections

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/lapsedb/lapse/schema/values"
)

// entries are the index entries of one version of a document, in the order of their
// keys. Each is number, space and the value's key: a Pebble key without collection
// and id. They are reused, since Fold makes them for every document. For
// {"tags":["a","b"]} and the index number 0 on /tags there are three:
//
//	00000000 00 <key of ["a","b"]>
//	00000000 01 <key of "a">
//	00000000 01 <key of "b">
type entries struct {
	keys  []byte
	list  []entrySpan
	found values.Found
}

// entrySpan is the position of an entry in keys.
type entrySpan struct {
	start, end int
	whole      bool // the value's key was not cut
}

func (e *entries) reset() { e.keys, e.list = e.keys[:0], e.list[:0] }

func (e *entries) key(i int) []byte { return e.keys[e.list[i].start:e.list[i].end] }

// add adds the entries of a document in the indexes of a set, or only in those under
// construction.
func (e *entries) add(set *indexSet, building bool, body []byte, m Meta) {
	set.paths.Find(body, m.TS, uint64(m.Version), &e.found)
	for i := range set.Indexes {
		x := &set.Indexes[i]
		if building && !x.Building {
			continue
		}
		value := e.found.Values[i]
		e.value(x.Number, ValueSpace, value)
		if kind := value.Kind(); kind == values.Array || kind == values.Object {
			e.members(x.Number, value)
		}
	}
}

// value adds one entry with the key of a value.
func (e *entries) value(number uint32, space Space, v values.Value) {
	start := e.begin(number, space)
	var whole bool
	e.keys, whole = values.AppendKeyPrefix(e.keys, v, MaxValueKeyBytes)
	e.list = append(e.list, entrySpan{start, len(e.keys), whole})
}

// name adds an entry for the name of a member.
func (e *entries) name(number uint32, name []byte) {
	start := e.begin(number, MemberSpace)
	end := len(e.keys) + MaxValueKeyBytes
	// Bytes beyond the cut need not be copied.
	e.keys = values.AppendTextKey(e.keys, name[:min(len(name), MaxValueKeyBytes)])
	whole := len(e.keys) <= end
	e.keys = e.keys[:min(len(e.keys), end)]
	e.list = append(e.list, entrySpan{start, len(e.keys), whole})
}

// begin starts an entry; its key ends where e.keys ends when the caller adds it to the
// list.
func (e *entries) begin(number uint32, space Space) (start int) {
	start = len(e.keys)
	e.keys = append(binary.BigEndian.AppendUint32(e.keys, number), byte(space))
	return start
}

// members adds an entry for each distinct member of an array or object, or a single
// one beyond MaxMembers. Duplicates count as members, so that the work is bounded. Sorting
// comes last, and makes the list ordered: all indexes have ascending numbers, and
// ValueSpace comes before MemberSpace. replace relies on that order.
func (e *entries) members(number uint32, v values.Value) {
	first, start := len(e.list), len(e.keys)
	n := 0
	if v.Kind() == values.Array {
		v.Elements(func(element values.Value) bool {
			if n++; n <= MaxMembers {
				e.value(number, MemberSpace, element)
			}
			return n <= MaxMembers
		})
	} else {
		v.Members(func(name []byte, _ values.Value) bool {
			if n++; n <= MaxMembers {
				e.name(number, name)
			}
			return n <= MaxMembers
		})
	}
	if n > MaxMembers {
		e.keys, e.list = e.keys[:start], e.list[:first]
		e.begin(number, MemberSpace)
		e.keys = append(e.keys, ManyMembers...)
		e.list = append(e.list, entrySpan{start, len(e.keys), true})
		return
	}
	members := e.list[first:]
	of := func(s entrySpan) []byte { return e.keys[s.start:s.end] }
	slices.SortFunc(members, func(a, b entrySpan) int { return bytes.Compare(of(a), of(b)) })
	members = slices.CompactFunc(members, func(a, b entrySpan) bool { return bytes.Equal(of(a), of(b)) })
	e.list = e.list[:first+len(members)]
}
