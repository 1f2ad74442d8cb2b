package projections

import (
	"encoding/binary"

	"github.com/lapsedb/lapse/schema"
)

// indexesOf returns the indexes after the facts so far.
func (f *fold) indexesOf(incarnation uint64) *indexSet {
	if set, ok := f.indexes[incarnation]; ok {
		return set
	}
	return f.store.indexesOf(incarnation)
}

// indexesOf returns the indexes of an incarnation; only Fold may call it.
func (s *Store) indexesOf(incarnation uint64) *indexSet {
	if set, ok := s.indexes[incarnation]; ok {
		return set
	}
	return noIndexes
}

// setIndexes applies the collection's indexing policy. It deletes the ranges of
// dropped indexes; Index builds new ones for existing documents. Only one range deletion
// per index, however many entries it has: that is why an index has a number that is never
// used again.
func (f *fold) setIndexes(c *schema.Collection) error {
	if f.store.noIndexes {
		return nil
	}
	before := f.indexesOf(c.Incarnation)
	set, dropped, err := before.redefine(&c.Properties, f.statsOf(c.Incarnation).documents == 0)
	if err != nil || set == before {
		return err
	}
	// Buffered writes must come before the deletion of their range.
	if err := f.store.indexer.flush(f.batch); err != nil {
		return err
	}
	for _, x := range dropped {
		f.key = indexNumberKey(f.key[:0], c.Incarnation, x.Number)
		if err := f.deletePrefix(f.key); err != nil {
			return err
		}
	}
	if before.lazy() && !set.lazy() {
		if err := f.dropLazy(c.Incarnation); err != nil {
			return err
		}
	}
	f.indexes[c.Incarnation] = set
	f.key = definitionsKey(f.key[:0], c.Incarnation)
	return f.batch.Set(f.key, set.encode(), nil)
}

// buryIndexes deletes the indexes of a collection. A collection that never had an index
// has nothing to delete; its set is not stored.
func (f *fold) buryIndexes(incarnation uint64) error {
	set := f.indexesOf(incarnation)
	delete(f.indexes, incarnation)
	if set.Next == 0 {
		return nil
	}
	// Buffered writes must come before the deletion of their range.
	if err := f.store.indexer.flush(f.batch); err != nil {
		return err
	}
	f.key = definitionsKey(f.key[:0], incarnation)
	if err := f.batch.Delete(f.key, nil); err != nil {
		return err
	}
	f.key = binary.BigEndian.AppendUint64(append(f.key[:0], keyIndex), incarnation)
	if err := f.deletePrefix(f.key); err != nil || !set.lazy() {
		return err
	}
	return f.dropLazy(incarnation)
}

// dropLazy deletes the marks and lists of lazy indexes.
func (f *fold) dropLazy(incarnation uint64) error {
	delete(f.marked, incarnation)
	f.key = marksPrefix(f.key[:0], incarnation)
	if err := f.deletePrefix(f.key); err != nil {
		return err
	}
	f.key = indexedPrefix(f.key[:0], incarnation)
	return f.deletePrefix(f.key)
}

// publishIndexes updates the store's memory of indexes after the commit. It adds work to
// busy and never takes any away: only a slice knows what is done.
func (f *fold) publishIndexes() {
	s := f.store
	for incarnation, set := range f.indexes {
		s.indexes[incarnation] = set
		if set.building() {
			s.busy[incarnation] = true
		}
	}
	for incarnation := range f.marked {
		s.busy[incarnation] = true
	}
}

// deletePrefix deletes all keys with a prefix by one tombstone.
func (f *fold) deletePrefix(prefix []byte) error {
	return f.batch.DeleteRange(prefix, successor(prefix), nil)
}

// index replaces a document's index entries by those after the fact; f.key is its
// key. A lazy collection gets a mark only. For a consistent one both versions are needed:
// the old content says which entries to delete, the new one which to set.
func (f *fold) index(incarnation uint64, set *indexSet, fact *Fact, prior, now Meta) error {
	if set.lazy() {
		f.marked[incarnation] = true
		f.key2 = markKey(f.key2[:0], incarnation, fact.Seq)
		f.value = append(f.value[:0], fact.ID...)
		return f.batch.Set(f.key2, f.value, nil)
	}
	x := &f.store.indexer
	x.before.reset()
	x.now.reset()
	if prior.Version != 0 {
		if err := f.priorBody(fact, prior, func(body []byte) {
			x.before.add(set, false, body, prior)
			if fact.Type.KeepsContent() {
				x.now.add(set, false, body, now)
			}
		}); err != nil {
			return err
		}
	}
	if now.Version != 0 && !fact.Type.KeepsContent() {
		x.now.add(set, false, fact.Body, now)
	}
	return x.replace(f.batch, incarnation, fact.ID, now)
}

// priorBody calls visit with the content before the fact, from the cheapest source.
// It is valid only during the call. With previous images an expiry or deletion carries the
// last content, so it needs no read.
func (f *fold) priorBody(fact *Fact, prior Meta, visit func(body []byte)) error {
	if r, ok := f.documents[string(f.key)]; ok && r.Body != nil {
		visit(r.Body)
		return nil
	}
	if fact.Type.EndsDocument() && len(fact.Body) > 0 && int64(len(fact.Body)) == prior.Size {
		visit(fact.Body)
		return nil
	}
	if r, ok := f.store.cache.get(f.key); ok && r.Version == prior.Version {
		visit(r.Body)
		return nil
	}
	return f.store.document(f.key, func(value []byte) error {
		r, err := decodeRecord(value)
		if err == nil {
			visit(r.Body)
		}
		return err
	})
}
