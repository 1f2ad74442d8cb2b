package projections

import (
	"math/bits"

	"github.com/lapsedb/lapse/schema"
)

// documents are those of one collection, in plain memory.
type documents struct {
	index map[uint64]place // the last one added of those whose ids have a hash
	pages [][]document     // each of pageSize; the first one grows to that
	free  place            // the first of those used no more, linked by next
	bytes arena            // of ids and contents
}

// place is where a document is, for as long as it is there.
type place uint32

const nowhere place = 0

// document is what is known of one. There are millions of them: no pointers,
// and 48 bytes.
type document struct {
	version schema.Version
	ts      int64
	sum     uint64
	piece   piece  // the length of its id, its id and its content
	next    place  // another one whose id has the same hash
	queued  uint32 // where it is in its bucket of those that wait
	ttl     schema.TTL
	size    uint32
}

const pageSize = 1 << 12

func newDocuments() documents { return documents{index: make(map[uint64]place)} }

func (s *documents) at(p place) *document { return &s.pages[p/pageSize][p%pageSize] }

func (d *document) meta() Meta {
	return Meta{Version: d.version, TS: d.ts, TTL: d.ttl, Size: int64(d.size), Sum: d.sum}
}

// id and body return what a document has; both are valid until it changes.
func (s *documents) id(d *document) []byte {
	piece := s.bytes.from(d.piece)
	return piece[1 : 1+int(piece[0])]
}

func (s *documents) body(d *document) []byte {
	piece := s.bytes.from(d.piece)
	return piece[1+int(piece[0]):][:d.size]
}

// find returns the place of the document with an id, given with its hash.
func (s *documents) find(hash uint64, id schema.DocumentID) place {
	p := s.index[hash]
	for p != nowhere {
		d := s.at(p)
		if string(s.id(d)) == string(id) {
			break
		}
		p = d.next
	}
	return p
}

// add makes a place for a document that is not there. It has an id and no
// content then.
func (s *documents) add(hash uint64, id schema.DocumentID) place {
	p := s.free
	if p != nowhere {
		s.free = s.at(p).next
	} else {
		p = s.grow()
	}
	d := s.at(p)
	*d = document{piece: s.bytes.take(1 + len(id)), next: s.index[hash]}
	piece := s.bytes.from(d.piece)
	piece[0] = byte(len(id))
	copy(piece[1:], id)
	s.index[hash] = p
	return p
}

// grow returns a place that was never used.
func (s *documents) grow() place {
	if len(s.pages) == 0 {
		s.pages = append(s.pages, make([]document, 1)) // which is nowhere
	}
	last := len(s.pages) - 1
	if len(s.pages[last]) == pageSize {
		s.pages = append(s.pages, make([]document, 0, pageSize))
		last++
	}
	s.pages[last] = append(s.pages[last], document{})
	return place(last*pageSize + len(s.pages[last]) - 1)
}

// set changes what a document is.
func (s *documents) set(p place, m Meta, body []byte) {
	d := s.at(p)
	head := 1 + len(s.id(d))
	if before, now := head+int(d.size), head+len(body); room(before) != room(now) {
		piece := s.bytes.take(now)
		copy(s.bytes.from(piece), s.bytes.from(d.piece)[:head])
		s.bytes.give(d.piece, before)
		d.piece = piece
	}
	d.version, d.ts, d.sum, d.ttl, d.size = m.Version, m.TS, m.Sum, m.TTL, uint32(len(body))
	copy(s.bytes.from(d.piece)[head:], body)
}

// remove removes the document at p, whose id has a hash.
func (s *documents) remove(hash uint64, p place) {
	d := s.at(p)
	if first := s.index[hash]; first != p {
		before := s.at(first)
		for before.next != p {
			before = s.at(before.next)
		}
		before.next = d.next
	} else if d.next != nowhere {
		s.index[hash] = d.next
	} else {
		delete(s.index, hash)
	}
	s.bytes.give(d.piece, 1+len(s.id(d))+int(d.size))
	*d = document{next: s.free}
	s.free = p
}

// arena gives out pieces of large chunks of memory. What comes back is given
// out again, for pieces of the same room.
type arena struct {
	chunks [][]byte
	next   piece              // the first unit of the last chunk that was never given out
	end    uint32             // of that chunk, in units
	free   map[uint32][]piece // by their room
	gaps   []uint32           // chunks that were given up
}

// piece is where a piece of memory begins.
type piece struct{ chunk, unit uint32 }

// A piece is a whole number of units. A chunk has as many as all before it
// together, within bounds; what is large has one for itself.
const (
	unitBytes  = 16
	chunkLeast = 4 << 10 / unitBytes
	chunkMost  = 1 << 20 / unitBytes
	pieceMost  = chunkMost / 4
)

// room returns how many units a piece of some bytes takes: up to an eighth more
// than needed, so that there are few different ones.
func room(bytes int) uint32 {
	units := uint32((bytes + unitBytes - 1) / unitBytes)
	step := uint32(1) << max(0, bits.Len32(units)-4)
	return (units + step - 1) &^ (step - 1)
}

// from returns the memory from where a piece begins.
func (a *arena) from(p piece) []byte { return a.chunks[p.chunk][int(p.unit)*unitBytes:] }

// take returns a piece for some bytes.
func (a *arena) take(bytes int) piece {
	units := room(bytes)
	if units > pieceMost {
		return piece{chunk: a.chunk(units)}
	}
	if free := a.free[units]; len(free) > 0 {
		a.free[units] = free[:len(free)-1]
		return free[len(free)-1]
	}
	if a.next.unit+units > a.end {
		a.end = min(max(2*a.end, chunkLeast), chunkMost)
		a.end = max(a.end, units)
		a.next = piece{chunk: a.chunk(a.end)}
	}
	p := a.next
	a.next.unit += units
	return p
}

// chunk makes a chunk of some units and returns its number.
func (a *arena) chunk(units uint32) uint32 {
	memory := make([]byte, int(units)*unitBytes)
	if n := len(a.gaps); n > 0 {
		number := a.gaps[n-1]
		a.gaps = a.gaps[:n-1]
		a.chunks[number] = memory
		return number
	}
	a.chunks = append(a.chunks, memory)
	return uint32(len(a.chunks) - 1)
}

// give gives a piece of some bytes back.
func (a *arena) give(p piece, bytes int) {
	units := room(bytes)
	if units > pieceMost {
		a.chunks[p.chunk] = nil
		a.gaps = append(a.gaps, p.chunk)
		return
	}
	if a.free == nil {
		a.free = make(map[uint32][]piece)
	}
	a.free[units] = append(a.free[units], p)
}
