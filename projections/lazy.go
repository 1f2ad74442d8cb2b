package projections

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lapsedb/lapse/schema"
)

// Lazy indexes lag behind the documents. Fold only writes a mark for each change: one
// small key. It neither reads the old content nor writes entries. Slices of Index process
// the marks in order.
//
//	Fold:   D s1, L 41 ─► s1          s1 has changed at sequence 41
//	Index:  V … s1, R s1, deletes L 41
//
// By then the old version of the document is gone, and with it the means to compute which
// entries it had. So R lists the entries that the document has in the indexes.
//
// A document that changed five times has five marks. The first one processed brings its
// entries up to date; R's version shows later slices that there is nothing to do.

// firstMark calls visit with an iterator, made by iterate, on the first mark of
// an incarnation after a sequence, if there is one.
func firstMark(iterate func(lower, upper []byte) (*pebble.Iterator, error), incarnation, after uint64, visit func(it *pebble.Iterator) error) error {
	it, err := iterate(markKey(nil, incarnation, after+1), successor(marksPrefix(nil, incarnation)))
	if err != nil {
		return err
	}
	if it.First() {
		err = visit(it)
	}
	return errors.Join(err, it.Error(), it.Close())
}

// hasMarks reports whether a lazy collection has changes to process; Open asks for it.
func (s *Store) hasMarks(incarnation uint64) (has bool, err error) {
	err = firstMark(s.iterate, incarnation, 0, func(*pebble.Iterator) error { has = true; return nil })
	return has, err
}

// catchUp processes the first marks. settled moves over processed marks, so that the next
// seek does not pass their tombstones, which Pebble keeps until a compaction.
func (w *slice) catchUp() error {
	// Only folds and slices change settled, so reading it needs no lock.
	return firstMark(w.store.iterate, w.incarnation, w.store.settled[w.incarnation], func(it *pebble.Iterator) error {
		more := true
		for ; more && !w.full(); more = it.Next() {
			id := schema.DocumentID(it.Value())
			r, err := w.current(id)
			if err != nil {
				return err
			}
			if err := w.document(id, r, false); err != nil {
				return err
			}
			if err := w.batch.Delete(it.Key(), nil); err != nil {
				return err
			}
			w.settled = markSeq(it.Key())
		}
		w.marks = more
		return nil
	})
}

// current reads a document, Version 0 if there is none. The record may be newer than the
// mark: then a later mark finds nothing to do.
func (w *slice) current(id schema.DocumentID) (r Record, err error) {
	w.key = documentKey(w.key[:0], w.incarnation, id)
	if r, ok := w.store.cache.get(w.key); ok {
		return r, nil
	}
	err = w.store.document(w.key, func(value []byte) error {
		r, err = decodeRecord(append([]byte(nil), value...))
		return err
	})
	return r, err
}

// catchUpDocument replaces a document's entries by those of r, none if its Version is
// 0. The list R is up to date if it names this version and knows all indexes of the set,
// since next grows with every new index.
func (w *slice) catchUpDocument(id schema.DocumentID, r Record) error {
	x := &w.store.indexer
	x.before.reset()
	x.now.reset()
	w.key = indexedKey(w.key[:0], w.incarnation, string(id))
	done := r.Version == 0
	if err := w.store.document(w.key, func(value []byte) error {
		version, next, err := x.before.decode(value)
		done = version == r.Version && next == w.set.Next
		return err
	}); err != nil || done {
		return err
	}
	if r.Version == 0 {
		if err := w.batch.Delete(w.key, nil); err != nil {
			return err
		}
	} else {
		x.now.add(w.set, false, r.Body, r.Meta)
		x.list = x.now.encode(x.list[:0], r.Version, w.set.Next)
		if err := w.batch.Set(w.key, x.list, nil); err != nil {
			return err
		}
	}
	return x.replace(w.batch, w.incarnation, id, r.Meta)
}

// encode appends a document's list of entries with the version that they are of; they
// are in the indexes numbered below next. For version 41 in indexes below 2, with two
// entries of 9 and 12 bytes:
//
//	29 02 | 09 <9 bytes> | 0c <12 bytes>
func (e *entries) encode(dst []byte, version schema.Version, next uint32) []byte {
	dst = binary.AppendUvarint(dst, uint64(version))
	dst = binary.AppendUvarint(dst, uint64(next))
	for i := range e.list {
		key := e.key(i)
		dst = append(binary.AppendUvarint(dst, uint64(len(key))), key...)
	}
	return dst
}

// decode reads the result of encode into memory of its own. It does not know which
// keys were cut: use such entries only to be replaced.
func (e *entries) decode(value []byte) (schema.Version, uint32, error) {
	bad := func() (schema.Version, uint32, error) {
		return 0, 0, fmt.Errorf("projection: malformed list of index entries %x", value[:min(len(value), 32)])
	}
	version, a := binary.Uvarint(value)
	next, b := binary.Uvarint(value[max(a, 0):])
	if a <= 0 || b <= 0 {
		return bad()
	}
	e.reset()
	for rest := value[a+b:]; len(rest) > 0; {
		length, n := binary.Uvarint(rest)
		if n <= 0 || length > uint64(len(rest)-n) {
			return bad()
		}
		start := len(e.keys)
		e.keys = append(e.keys, rest[n:n+int(length)]...)
		e.list = append(e.list, entrySpan{start: start, end: len(e.keys)})
		rest = rest[n+int(length):]
	}
	return schema.Version(version), uint32(next), nil
}
