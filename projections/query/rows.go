package query

import (
	"bytes"
	"errors"

	"github.com/lapsedb/lapse/projections"
)

// candidate is a live document that matches; its memory is valid until the next one. Its
// id, and the record if it was read, belong to the iterator below. Who keeps one, copies
// it.
type candidate struct {
	run   *run
	id    []byte
	found projections.Record
	read  bool   // found is valid
	key   []byte // of its position, for a request by deadline
}

// record returns the document; ok is false if it does not exist. A document of an exact
// access is read here, only when the page needs it: a count reads none.
func (c *candidate) record() (projections.Record, bool, error) {
	if c.read {
		return c.found, true, nil
	}
	record, ok, err := c.run.view.Document(c.id)
	return record, ok, err
}

// matches reports whether a document is live and the condition true for it. The deadline
// comes first, since it costs least and a document that is due does not exist.
func (r *run) matches(record projections.Record) (bool, error) {
	if record.Deadline(r.view.Collection()).Passed(r.now) {
		return false, nil
	}
	r.read += len(record.Body)
	if r.where == nil {
		return true, nil
	}
	return r.where.matches(record)
}

// errAhead ends a lookahead that scanned run.enough rows.
var errAhead = errors.New("enough rows were scanned")

// each visits the live documents that match, after run.after if the access is in the
// query's order, until visit returns false. Positions and accesses need not be of the same
// kind: a cursor names a place in the query's order, and each way below finds it by its
// own means.
func (r *run) each(a *access, after *position, visit func(*candidate) (bool, error)) error {
	switch {
	case r.request.due != nil && r.request.held:
		return nil // a held document has no deadline
	case r.request.due != nil:
		return r.eachDue(after, visit)
	case r.request.held:
		return r.eachRow(r.view.Held(r.request.idPrefix, after.from()), r.view.Document, visit)
	}
	if a.ids != nil {
		return r.eachNamed(a.ids, after, visit)
	}
	if a.scan {
		return r.eachDocument(after, visit)
	}
	return r.eachEntry(a, after, visit)
}

// eachID visits the candidates of ids, as next returns them until ok is false. read returns
// the document of an id; if it is nil, every id is a candidate.
func (r *run) eachID(next func() (id []byte, ok bool), read func(id []byte) (projections.Record, bool, error), visit func(*candidate) (bool, error)) error {
	c := &candidate{run: r, read: read != nil}
	for {
		id, ok := next()
		if !ok {
			return nil
		}
		if err := r.step(); err != nil {
			return err
		}
		if c.id = id; read != nil {
			var err error
			if c.found, ok, err = read(id); ok && err == nil {
				ok, err = r.matches(c.found)
			}
			if err != nil {
				return err
			}
		}
		if !ok {
			continue
		}
		if more, err := visit(c); !more || err != nil {
			return err
		}
	}
}

// eachRow is eachID for the rows of an iterator, which it closes.
func (r *run) eachRow(rows *projections.Documents, read func(id []byte) (projections.Record, bool, error), visit func(*candidate) (bool, error)) error {
	err := r.eachID(func() ([]byte, bool) {
		if !rows.Next() {
			return nil, false
		}
		return rows.ID(), true
	}, read, visit)
	return errors.Join(err, rows.Close())
}

// eachDocument is each for a scan by id, which reads the record under the iterator instead
// of looking it up.
func (r *run) eachDocument(after *position, visit func(*candidate) (bool, error)) error {
	rows := r.view.Documents(r.request.idPrefix, after.from())
	return r.eachRow(rows, func([]byte) (projections.Record, bool, error) {
		record, err := rows.Record()
		return record, true, err
	}, visit)
}

// eachNamed is each for the documents with the given ids, which ascend.
func (r *run) eachNamed(ids []string, after *position, visit func(*candidate) (bool, error)) error {
	for len(ids) > 0 && after != nil && ids[0] <= string(after.id) {
		ids = ids[1:]
	}
	return r.eachID(func() (id []byte, ok bool) {
		if len(ids) == 0 {
			return nil, false
		}
		id, ids = []byte(ids[0]), ids[1:]
		return id, true
	}, r.view.Document, visit)
}

// eachEntry is each for the documents of index entries. Where the entry suffices, no
// document is read: it has the deadline, and in an exact access its key decides the
// condition. A lazy index may be out of date. So its entries are hints of documents to
// look at, and stillAt says whether an entry's place is still right.
func (r *run) eachEntry(a *access, after *position, visit func(*candidate) (bool, error)) error {
	if a.ordered && after != nil && len(after.key) > projections.MaxValueKeyBytes {
		return errCutKey
	}
	c := &candidate{run: r}
	collection := r.view.Collection()
	walk := walker{ctx: r.ctx, view: r.view, access: a, after: after}
	return walk.entries(func(entry projections.IndexEntry) (bool, error) {
		if err := r.step(); err != nil {
			return false, err
		}
		if a.ordered && !entry.Whole {
			return false, errCutKey
		}
		if !a.index.Lazy && entry.Meta.Deadline(collection).Passed(r.now) {
			return true, nil
		}
		c.id, c.read = entry.ID, false
		if a.exact && entry.Whole {
			return visit(c)
		}
		record, ok, err := c.record()
		if !ok || err != nil {
			return true, err
		}
		c.found, c.read = record, true
		if matches, err := r.matches(record); !matches || err != nil {
			return true, err
		}
		if a.ordered && a.index.Lazy {
			if there, err := r.stillAt(entry, record); !there || err != nil {
				return true, err
			}
		}
		return visit(c)
	})
}

// stillAt reports whether a document still has the value of an entry of a lazy index.
// If not, the index will replace the entry.
func (r *run) stillAt(entry projections.IndexEntry, record projections.Record) (bool, error) {
	key, err := r.sorter.of(record)
	if r.access.desc {
		turn(key)
	}
	return bytes.Equal(key, entry.Key), err
}
