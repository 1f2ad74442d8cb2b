package query

import (
	"bytes"
	"errors"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// candidate is a live document that matches; its memory is valid until the next one.
type candidate struct {
	run   *run
	id    []byte
	found projections.Record
	read  bool   // found is valid
	key   []byte // of its position, for a request by deadline
}

// record returns the document; ok is false if it does not exist.
func (c *candidate) record() (projections.Record, bool, error) {
	if c.read {
		return c.found, true, nil
	}
	record, ok, err := c.run.view.Document(c.id)
	return record, ok, err
}

// matches reports whether a document is live and the condition true for it.
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
// query's order, until visit returns false.
func (r *run) each(a *access, after *position, visit func(*candidate) (bool, error)) error {
	switch {
	case r.request.due != nil && r.request.held:
		return nil // a held document has no deadline
	case r.request.due != nil:
		return r.eachDue(after, visit)
	case r.request.held:
		return r.eachHeld(after, visit)
	}
	if a.ids != nil {
		return r.eachNamed(a.ids, after, visit)
	}
	if a.scan {
		return r.eachDocument(after, visit)
	}
	return r.eachEntry(a, after, visit)
}

func (r *run) eachDocument(after *position, visit func(*candidate) (bool, error)) (err error) {
	var from schema.DocumentID
	if after != nil {
		from = schema.DocumentID(after.id)
	}
	documents := r.view.Documents(from)
	defer func() { err = errors.Join(err, documents.Close()) }()
	c := &candidate{run: r, read: true}
	for ok := documents.First(); ok; ok = documents.Next() {
		if err := r.step(); err != nil {
			return err
		}
		if c.found, err = documents.Record(); err != nil {
			return err
		}
		matches, err := r.matches(c.found)
		if err != nil {
			return err
		}
		if !matches {
			continue
		}
		c.id = documents.ID()
		if more, err := visit(c); !more || err != nil {
			return err
		}
	}
	return nil
}

// eachHeld is each for held documents, in the order of their ids.
func (r *run) eachHeld(after *position, visit func(*candidate) (bool, error)) (err error) {
	var from schema.DocumentID
	if after != nil {
		from = schema.DocumentID(after.id)
	}
	held := r.view.Held(from)
	defer func() { err = errors.Join(err, held.Close()) }()
	c := &candidate{run: r, read: true}
	for ok := held.First(); ok; ok = held.Next() {
		if err := r.step(); err != nil {
			return err
		}
		var there bool
		if c.found, there, err = r.view.Document(held.ID()); err != nil {
			return err
		} else if there {
			there, err = r.matches(c.found)
		}
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		c.id = held.ID()
		if more, err := visit(c); !more || err != nil {
			return err
		}
	}
	return nil
}

// eachNamed is each for the documents with the given ids, which ascend.
func (r *run) eachNamed(ids []string, after *position, visit func(*candidate) (bool, error)) error {
	c := &candidate{run: r, read: true}
	for _, id := range ids {
		c.id = []byte(id)
		if after != nil && id <= string(after.id) {
			continue
		}
		if err := r.step(); err != nil {
			return err
		}
		var ok bool
		var err error
		if c.found, ok, err = r.view.Document(c.id); err != nil {
			return err
		} else if ok {
			ok, err = r.matches(c.found)
		}
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if more, err := visit(c); !more || err != nil {
			return err
		}
	}
	return nil
}

// eachEntry is each for the documents of index entries.
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
