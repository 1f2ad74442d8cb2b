package projections

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lapsedb/lapse/schema"
)

// View is one collection at one position of the log; later folds do not change it.
// It holds disk space: close it, after its iterators. It is not safe for concurrent
// use. Pebble and the store's memory change one after the other, so a View is made in two
// ways: take copies the memory if no batch is being written, and load reads the moment
// else. Both give one position; the first costs no reads.
type View struct {
	store      *Store
	moment     moment
	cursor     Cursor
	collection *schema.Collection
	indexes    *indexSet
	stats      stats
	behind     uint64
	key        []byte // scratch
}

// View returns the named collection as it is now; ok is false if there is none.
func (s *Store) View(name schema.CollectionName) (v *View, ok bool, err error) {
	v = &View{store: s, indexes: noIndexes}
	settled, known, err := v.take(name)
	if err != nil {
		return nil, false, err
	}
	ok = v.collection != nil
	if !known {
		ok, err = v.load(name)
	}
	if ok && err == nil && v.indexes.lazy() {
		err = v.loadBehind(settled)
	}
	if !ok || err != nil {
		return nil, false, errors.Join(err, v.Close())
	}
	return v, true, nil
}

// take creates the moment. known reports that no batch was being written, so that the
// store's memory has the same position. Up to sequence settled there are no marks.
func (v *View) take(name schema.CollectionName) (settled uint64, known bool, err error) {
	s := v.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	if v.moment, err = s.moment(); err != nil {
		return 0, false, err
	}
	c, ok := s.collections[name]
	if s.writing {
		return 0, false, nil
	} else if !ok {
		return 0, true, nil
	}
	v.cursor, v.collection, v.stats = s.cursor, c, s.stats[c.Incarnation]
	if set, ok := s.indexes[c.Incarnation]; ok {
		v.indexes = set
	}
	return s.settled[c.Incarnation], true, nil
}

// load reads collection and counts from the moment, when the store's memory may have
// another position.
func (v *View) load(name schema.CollectionName) (ok bool, err error) {
	var buf [64 + indexCollectionBytes]byte
	if ok, err = v.moment.get(append(buf[:0], keyCursor), func(value []byte) error {
		v.cursor, err = decodeCursor(value)
		return err
	}); !ok || err != nil {
		return false, err
	}
	if ok, err = v.moment.get(collectionKey(buf[:0], name), func(value []byte) error {
		v.collection, err = decodeCollection(name, value)
		return err
	}); !ok || err != nil {
		return false, err
	}
	incarnation := v.collection.Incarnation
	if _, err = v.moment.get(statsKey(buf[:0], incarnation), func(value []byte) error {
		v.stats, err = decodeStats(value)
		return err
	}); err != nil {
		return false, err
	}
	_, err = v.moment.get(definitionsKey(buf[:0], incarnation), func(value []byte) error {
		v.indexes, err = decodeIndexes(value)
		return err
	})
	return err == nil, err
}

// loadBehind finds the first change after settled that the lazy indexes lack. Fewer than
// Behind sequences may be of this collection: it counts the log's.
func (v *View) loadBehind(settled uint64) error {
	return firstMark(v.moment.iterate, v.collection.Incarnation, settled, func(it *pebble.Iterator) error {
		v.behind = v.cursor.Seq - markSeq(it.Key()) + 1
		return nil
	})
}

// Close releases the position.
func (v *View) Close() error { return v.moment.close() }

// Seq returns the last sequence that is folded into the view.
func (v *View) Seq() uint64 { return v.cursor.Seq }

// Time returns the log time at Seq, in ms since 1970.
func (v *View) Time() int64 { return v.cursor.Time }

// Collection returns the collection. It is shared: do not change it.
func (v *View) Collection() *schema.Collection { return v.collection }

// Len returns the number of documents as folded, overdue ones included.
func (v *View) Len() int64 { return v.stats.documents }

// Behind returns by how many sequences, at most, the lazy indexes are behind Seq; 0
// if they are up to date.
func (v *View) Behind() uint64 { return v.behind }

// Index is a secondary index of a View.
type Index struct {
	Path string // JSON pointer
	// Lazy indexes lag behind the documents by up to Behind sequences: an entry may be
	// outdated, and a document may have none.
	Lazy bool
	// Complete means that documents older than the index have their entries, too.
	Complete bool

	number uint32
}

// Indexes returns the indexes of the collection, oldest first.
func (v *View) Indexes() []Index {
	all := make([]Index, len(v.indexes.Indexes))
	for i, x := range v.indexes.Indexes {
		all[i] = Index{Path: x.Path, Lazy: x.Lazy, Complete: !x.Building, number: x.Number}
	}
	return all
}

// Document reads a document, expired or not: the caller checks its Meta. The record's
// Body is valid until the next call; do not change it.
func (v *View) Document(id []byte) (r Record, ok bool, err error) {
	v.key = v.documentKey(v.key[:0], id)
	if r, ok := v.recent(v.key); ok {
		return r, true, nil
	}
	ok, err = v.moment.get(v.key, func(value []byte) error {
		r, err = decodeRecord(value)
		return err
	})
	return r, ok, err
}

func (v *View) documentKey(dst, id []byte) []byte {
	return append(documentKey(dst, v.collection.Incarnation, ""), id...)
}

// recent looks the document up in the cache of recent changes, which equals Pebble
// now. A version that is not after Seq was the document's at Seq, too, since an ended
// version does not return. For an ended document the cache does not know since when.
func (v *View) recent(key []byte) (Record, bool) {
	r, ok := v.store.cache.get(key)
	return r, ok && r.Version != 0 && uint64(r.Version) <= v.cursor.Seq
}
