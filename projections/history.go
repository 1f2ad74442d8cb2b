package projections

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/lapsedb/lapse/schema"
)

// History: which events of the log are about a document. The log is not searched. An event
// of a live document names the one before it (Lapse-Previous), back to the
// DocumentCreated. So it suffices to know where each chain ends:
//
//   - the live version is in D
//   - a version that ended by deletion or expiry has a key H at the event that ended it
//   - one that ended with its collection stays in D, below the incarnation that X names
//   - no chain leads to holds, releases and warnings, so each has a key H of its own
//
// Prune removes keys whose event the log no longer has.

// LastOf returns the sequence of the last event of a document that Lives knows, 0 if there
// is none.
func (s *Store) LastOf(name schema.CollectionName, id schema.DocumentID) (seq uint64, err error) {
	lives, err := s.Lives(name, id, 1)
	if len(lives) > 0 {
		seq = lives[0]
	}
	return seq, err
}

// Ended returns the sequence of the last event of an id that ended an incarnation or was
// about a hold or a warning; 0 if there is none.
func (s *Store) Ended(name schema.CollectionName, id schema.DocumentID) (seq uint64, err error) {
	ends, err := s.ended(name, id, math.MaxUint64, 1)
	if len(ends) > 0 {
		seq = ends[0]
	}
	return seq, err
}

// ended returns the sequences of such events up to last, newest first and at most limit.
// The upper bound is last with one byte more, so that last itself is included.
func (s *Store) ended(name schema.CollectionName, id schema.DocumentID, last uint64, limit int) (ends []uint64, err error) {
	prefix := historyPrefix(nil, name, id)
	it, err := s.iterate(prefix, append(binary.BigEndian.AppendUint64(slices.Clone(prefix), last), 0))
	if err != nil {
		return nil, err
	}
	for ok := it.Last(); ok && len(ends) < limit; ok = it.Prev() {
		ends = append(ends, binary.BigEndian.Uint64(it.Key()[len(prefix):]))
	}
	return ends, errors.Join(it.Error(), it.Close())
}

// Lives returns, newest first and at most limit, the sequence of the last event of each
// incarnation of a document: the live one, those that ended, and those that ended with
// their collection. Lapse-Previous leads from there to earlier events. It includes each
// DocumentHeld, DocumentReleased and DocumentExpiring.
func (s *Store) Lives(name schema.CollectionName, id schema.DocumentID, limit int) ([]uint64, error) {
	return s.lives(name, id, math.MaxUint64, limit, false)
}

// LivesAndDeletions is Lives, of sequences up to last, with each CollectionDeleted that
// ended an incarnation of the document: from there its whole history follows.
func (s *Store) LivesAndDeletions(name schema.CollectionName, id schema.DocumentID, last uint64, limit int) ([]uint64, error) {
	return s.lives(name, id, last, limit, true)
}

// lives is both. A reader may fold meanwhile, so it reads the live version first and H
// last: a document that ends between them is found twice, and the duplicates go.
func (s *Store) lives(name schema.CollectionName, id schema.DocumentID, last uint64, limit int, deletions bool) ([]uint64, error) {
	var ends []uint64
	now := func(incarnation, deletion uint64) error {
		return s.document(documentKey(nil, incarnation, id), func(value []byte) error {
			r, err := decodeRecord(value)
			if ends = append(ends, uint64(r.Version)); deletion != 0 {
				ends = append(ends, deletion)
			}
			return err
		})
	}
	if c, ok := s.Collection(name); ok {
		if err := now(c.Incarnation, 0); err != nil {
			return nil, err
		}
	}
	prefix := buriedPrefix(nil, name)
	if err := s.scan(prefix, func(key, value []byte) error {
		var deletion uint64
		if deletions {
			deletion = binary.BigEndian.Uint64(value)
		}
		return now(binary.BigEndian.Uint64(key[len(prefix):]), deletion)
	}); err != nil {
		return nil, err
	}
	// Last: a document that ends meanwhile is then found twice, not missed.
	ended, err := s.ended(name, id, last, limit)
	if err != nil {
		return nil, err
	}
	ends = append(ends, ended...)
	ends = slices.DeleteFunc(ends, func(seq uint64) bool { return seq > last })
	slices.Sort(ends)
	ends = slices.Compact(ends) // a collection that is deleted meanwhile is found twice
	slices.Reverse(ends)
	return ends[:min(len(ends), limit)], nil
}
