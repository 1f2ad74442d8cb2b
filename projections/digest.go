package projections

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/lapsedb/lapse/schema"
)

// Digest is a hash of the logical state: collections with their properties, and
// their documents with version, _ts, ttl and content. Folding the same events gives
// the same digest, in any steps; internal events do not count. It finds faults, not
// forgery. Internal events at the end of a log change the cursor and not the digest. So a
// replay that stops at the last event of a client agrees with a process that has folded
// further.
type Digest struct {
	Seq uint64 // the last event folded that is not internal
	Sum uint64
}

// String returns the digest as status and replay show it: 42:9f86d081884c7d65.
func (d Digest) String() string { return fmt.Sprintf("%d:%016x", d.Seq, d.Sum) }

// documentSum is one document's part of the digest. A collection's are added modulo
// 2^64, so that a document can be subtracted again, in any order: AdHash of Bellare
// and Micciancio, "A New Paradigm for Collision-Free Hashing: Incrementality at
// Reduced Cost", Eurocrypt 1997.
func documentSum(incarnation uint64, id schema.DocumentID, m Meta) uint64 {
	var buf [6*8 + 255]byte
	b := binary.BigEndian.AppendUint64(buf[:0], incarnation)
	for _, n := range [...]uint64{uint64(m.Version), uint64(m.TS), uint64(m.TTL), m.Sum} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	if m.Held { // others keep the sum that they had before there were holds
		b = binary.BigEndian.AppendUint64(b, heldTTL)
	}
	return xxhash.Sum64(append(b, id...))
}

// Digest returns the digest at the cursor. Its cost does not depend on the number of
// documents.
func (s *Store) Digest() Digest {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return digestOf(s.cursor, s.sortedCollections(), s.stats)
}

// digestOf computes a digest; collections are in the order of their names.
func digestOf(cursor Cursor, collections []*schema.Collection, counts map[uint64]stats) Digest {
	h := xxhash.New()
	var b []byte
	for _, c := range collections {
		st := counts[c.Incarnation]
		b = append(append(b[:0], c.Name...), 0)
		b = append(b, encodeCollection(c)...)
		b = binary.BigEndian.AppendUint64(b, uint64(st.documents))
		b = binary.BigEndian.AppendUint64(b, st.sum)
		_, _ = h.Write(b) // never fails
	}
	return Digest{Seq: cursor.Last, Sum: h.Sum64()}
}
