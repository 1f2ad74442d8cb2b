package projections

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lapsedb/lapse/schema"
)

// Index work: what a fold leaves for later.
//
//   - A consistent index of a collection that had documents: build walks over them by id.
//     Changes meanwhile write their own entries in Fold, also for ids that the walk has
//     passed, so one pass is enough. An index is used by queries when it is complete.
//   - A lazy collection: catchUp processes its marks (lazy.go), besides building.
//
// A slice of work is one batch under Store.folding. It reads documents and writes entries
// by the same state, so no fold can come between them. Progress is in that batch: a crash
// resumes at the last slice that reached the disk.
//
// busy names the incarnations with work. A collection leaves it only when a slice has
// found neither marks nor incomplete indexes.

// IndexWork holds a value when there may be work for Index: after Open, Fold or
// Index has not done all.
func (s *Store) IndexWork() <-chan struct{} { return s.work }

// Building returns the collections that have an index under construction.
func (s *Store) Building() (names []schema.CollectionName) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, c := range s.collections {
		if set := s.indexes[c.Incarnation]; set != nil && set.building() {
			names = append(names, name)
		}
	}
	return names
}

// announce signals work for Index. The channel has room for one signal, which stands for
// any amount of work.
func (s *Store) announce() {
	if len(s.busy) > 0 {
		select {
		case s.work <- struct{}{}:
		default:
		}
	}
}

// loadIndexes reads the definitions and finds unfinished work.
func (s *Store) loadIndexes() error {
	if err := s.scan([]byte{keyDefinitions}, func(key, value []byte) error {
		set, err := decodeIndexes(value)
		if err == nil {
			err = set.compile()
			s.indexes[binary.BigEndian.Uint64(key[1:])] = set
		}
		return err
	}); err != nil {
		return err
	}
	for incarnation, set := range s.indexes {
		marked := false
		if set.lazy() {
			var err error
			if marked, err = s.hasMarks(incarnation); err != nil {
				return err
			}
		}
		if marked || set.building() {
			s.busy[incarnation] = true
		}
	}
	s.announce()
	return nil
}

// sliceBytes bounds the document bytes that one slice of index work reads and, about,
// writes, so that large documents do not delay Fold.
const sliceBytes = 1 << 20

// Index does one slice of index work: for up to limit documents of one collection,
// at least one, it writes the missing entries of indexes under construction or of
// lazy ones. more reports whether work remains. Fold waits meanwhile; a read
// sees all of a slice or nothing. It may be called again after an error.
func (s *Store) Index(limit int) (more bool, err error) {
	s.folding.Lock()
	defer s.folding.Unlock()
	if err := s.Failure(); err != nil {
		return true, err
	}
	defer s.announce()
	incarnation, ok := s.turn()
	if !ok {
		return false, nil
	}
	w := &slice{store: s, batch: s.db.NewBatch(), incarnation: incarnation, set: s.indexesOf(incarnation), remaining: max(limit, 1)}
	defer w.batch.Close()
	defer s.indexer.clear()
	if err := w.run(); err != nil {
		return true, err
	}
	if err := s.write(func() error { return w.batch.Commit(pebble.NoSync) }, w.publish); err != nil {
		return true, err
	}
	return len(s.busy) > 0, nil
}

// publish updates the store's memory after the commit; the caller holds mu.
func (w *slice) publish() {
	s := w.store
	s.served = w.incarnation
	s.indexes[w.incarnation] = w.set
	if w.settled != 0 {
		s.settled[w.incarnation] = w.settled
	}
	if !w.marks && !w.set.building() {
		delete(s.busy, w.incarnation)
	}
}

// turn returns the next collection to work on: collections take turns by slices. The next
// one is that with the least incarnation above the last one served, round and round.
func (s *Store) turn() (incarnation uint64, ok bool) {
	least, next := uint64(0), uint64(0)
	for i := range s.busy {
		if least == 0 || i < least {
			least = i
		}
		if i > s.served && (next == 0 || i < next) {
			next = i
		}
	}
	if next == 0 {
		next = least
	}
	return next, next != 0
}

// slice is one call of Index.
type slice struct {
	store       *Store
	batch       *pebble.Batch
	incarnation uint64
	set         *indexSet
	remaining   int // documents that may still be read
	bytes       int // of documents read

	marks   bool   // marks remain
	settled uint64 // the last mark done, 0 for none
	key     []byte
}

// run does the slice's work: marks first, then documents that indexes under construction
// lack.
func (w *slice) run() error {
	building := w.set.building()
	if w.set.lazy() {
		// Lazy changes and building alternate, so that neither starves.
		spare := 0
		if building {
			spare = w.remaining / 2
		}
		w.remaining -= spare
		if err := w.catchUp(); err != nil {
			return err
		}
		w.remaining += spare
	}
	if building && w.remaining > 0 {
		if err := w.build(); err != nil {
			return err
		}
	}
	return w.store.indexer.flush(w.batch)
}

// full reports whether the limits of the slice are reached.
func (w *slice) full() bool {
	return w.remaining <= 0 || w.bytes+w.batch.Len()+len(w.store.indexer.memory) >= sliceBytes
}

// build writes entries for the next documents, and in the same batch its progress. Fold
// updates the entries of changed documents, so one pass over all suffices.
func (w *slice) build() error {
	at, started := "", false
	for _, x := range w.set.Indexes {
		if x.Building && (!started || x.At < at) {
			at, started = x.At, true
		}
	}
	prefix := documentKey(nil, w.incarnation, "")
	lower := append(slices.Clone(prefix), at...)
	if at != "" {
		lower = append(lower, 0)
	}
	it, err := w.store.iterate(lower, successor(prefix))
	if err != nil {
		return err
	}
	more := it.First()
	// At least one document, so that the build ends whatever the limits.
	for first := true; more && (first || !w.full()); first = false {
		r, err := decodeRecord(it.Value())
		if err == nil {
			at = string(it.Key()[len(prefix):])
			err = w.document(schema.DocumentID(at), r, true)
		}
		if err != nil {
			return errors.Join(err, it.Close())
		}
		more = it.Next()
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return err
	}
	w.advance(at, !more)
	w.key = definitionsKey(w.key[:0], w.incarnation)
	return w.batch.Set(w.key, w.set.encode(), nil)
}

// advance records that all documents up to the id, or all, have their entries. It makes a
// new set, since views may still read the old one.
func (w *slice) advance(at string, all bool) {
	set := &indexSet{Next: w.set.Next, Indexes: slices.Clone(w.set.Indexes), paths: w.set.paths}
	for i := range set.Indexes {
		switch x := &set.Indexes[i]; {
		case !x.Building:
		case all:
			x.Building, x.At = false, ""
		case x.At < at:
			x.At = at
		}
	}
	w.set = set
}

// document writes the missing entries of a document; building means that only
// indexes under construction can lack any.
func (w *slice) document(id schema.DocumentID, r Record, building bool) error {
	w.remaining--
	w.bytes += len(r.Body)
	if w.set.lazy() {
		return w.catchUpDocument(id, r)
	}
	x := &w.store.indexer
	x.before.reset()
	x.now.reset()
	x.now.add(w.set, building, r.Body, r.Meta)
	return x.replace(w.batch, w.incarnation, id, r.Meta)
}
