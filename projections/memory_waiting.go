package projections

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/lapsedb/lapse/schema"
)

// waiting are the documents of one expiry order of a collection, in plain
// memory: a bucket for each second, and within it no order until the second is
// walked. Most documents leave it before.
type waiting struct {
	buckets map[int64]*bucket
	seconds seconds // those that have a bucket
	scratch []sortKey
}

// bucket is what waits for one second.
type bucket struct {
	places []place // nowhere: it has left
	first  int     // of those that may not have left
	count  int     // of those that have not
	sorted bool    // by id
}

// add adds a document, whose place in the bucket it keeps.
func (w *waiting) add(s *documents, second int64, p place) {
	b := w.buckets[second]
	if b == nil {
		if w.buckets == nil {
			w.buckets, w.seconds = make(map[int64]*bucket), make(seconds)
		}
		b = new(bucket)
		w.buckets[second] = b
		w.seconds.add(second)
	}
	s.at(p).queued = uint32(len(b.places))
	b.places = append(b.places, p)
	b.count++
	b.sorted = false
}

// remove removes a document.
func (w *waiting) remove(s *documents, second int64, p place) {
	b := w.buckets[second]
	if b.count--; b.count == 0 {
		delete(w.buckets, second)
		w.seconds.remove(second)
		return
	}
	b.places[s.at(p).queued] = nowhere
	for b.places[b.first] == nowhere {
		b.first++
	}
	// Those that have left are not kept for long where the others stay.
	if len(b.places) > 4*b.count+64 {
		b.squeeze()
		b.number(s)
	}
}

// squeeze removes those that have left.
func (b *bucket) squeeze() {
	kept := slices.DeleteFunc(b.places[b.first:], func(p place) bool { return p == nowhere })
	b.places, b.first = slices.Clone(kept), 0
}

// number tells the documents where they are.
func (b *bucket) number(s *documents) {
	for i, p := range b.places {
		s.at(p).queued = uint32(i)
	}
}

// sortKey is some of an id, as a number that sorts the same.
type sortKey struct {
	key uint64
	place
}

// sort sorts a bucket by id.
func (w *waiting) sort(s *documents, b *bucket) {
	if b.sorted {
		return
	}
	b.squeeze()
	// Ids mostly begin all the same: eight bytes after that tell nearly all apart.
	id := func(p place) []byte { return s.id(s.at(p)) }
	same := id(b.places[0])
	for _, p := range b.places {
		same = same[:common(same, id(p))]
	}
	keys := w.scratch[:0]
	for _, p := range b.places {
		var rest [8]byte
		copy(rest[:], id(p)[len(same):])
		keys = append(keys, sortKey{binary.BigEndian.Uint64(rest[:]), p})
	}
	slices.SortFunc(keys, func(a, b sortKey) int {
		if a.key != b.key {
			return cmp.Compare(a.key, b.key)
		}
		return bytes.Compare(id(a.place), id(b.place))
	})
	for i, k := range keys {
		b.places[i] = k.place
	}
	w.scratch = keys
	b.number(s)
	b.sorted = true
}

// common returns how many bytes a and b have in common at their beginning.
func common(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// scan is Memory.Scan for one expiry order.
func (s *shelf) scan(order Order, after Entry, last int64, visit func(Entry) bool) (next int64, more bool) {
	w := &s.waiting[order]
	passed := func(second int64, p place) bool {
		return p == nowhere || second == after.Second && string(s.documents.id(s.documents.at(p))) <= string(after.ID)
	}
	for second, ok := w.seconds.next(after.Second); ok; second, ok = w.seconds.next(second + 1) {
		b := w.buckets[second]
		if second > last {
			// Of those that are not walked the order does not matter.
			if slices.ContainsFunc(b.places[b.first:], func(p place) bool { return !passed(second, p) }) {
				return second, true
			}
			continue
		}
		w.sort(&s.documents, b)
		for _, p := range b.places[b.first:] {
			if passed(second, p) {
				continue
			}
			d := s.documents.at(p)
			if !visit(Entry{Second: second, ID: schema.DocumentID(s.documents.id(d)), Meta: d.meta()}) {
				return 0, false
			}
		}
	}
	return 0, false
}

// seconds is an ordered set of seconds since 1970: bits in words of 64, those
// words that are not zero again as bits in words of 64, and so on. A second is
// hardly ever far from the next, so that looking for that takes a look or two.
type seconds map[wordKey]uint64

// wordKey is a word's number and, in the highest bits, its level.
type wordKey uint64

const (
	wordBits = 6
	levels   = (63 + wordBits - 1) / wordBits
)

func word(level int, number uint64) wordKey {
	return wordKey(uint64(level)<<(64-wordBits) | number)
}

func (s seconds) add(second int64) {
	at := uint64(second)
	for level := range levels {
		key := word(level, at>>wordBits)
		before := s[key]
		s[key] = before | 1<<(at%64)
		if before != 0 {
			return
		}
		at >>= wordBits
	}
}

func (s seconds) remove(second int64) {
	at := uint64(second)
	for level := range levels {
		key := word(level, at>>wordBits)
		if now := s[key] &^ (1 << (at % 64)); now != 0 {
			s[key] = now
			return
		}
		delete(s, key)
		at >>= wordBits
	}
}

// next returns the first second of the set that is not before from.
func (s seconds) next(from int64) (second int64, ok bool) {
	at := uint64(from)
	for level := range levels {
		if rest := s[word(level, at>>wordBits)] >> (at % 64); rest != 0 {
			at += uint64(bits.TrailingZeros64(rest))
			for ; level > 0; level-- {
				at = at<<wordBits | uint64(bits.TrailingZeros64(s[word(level-1, at)]))
			}
			return int64(at), true
		}
		at = at>>wordBits + 1
	}
	return 0, false
}
