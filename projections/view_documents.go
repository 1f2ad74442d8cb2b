package projections

import (
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lapsedb/lapse/schema"
)

// Documents iterates over the documents of a View in the order of their ids, expired
// ones included.
type Documents struct{ rows }

// Documents returns an iterator over the documents whose ids begin with a prefix, after an
// id with that prefix or all if after is empty. It is unpositioned, and costs nothing until
// it moves.
func (v *View) Documents(idPrefix string, after schema.DocumentID) *Documents {
	return v.documentsBelow(v.documentKey(nil, nil), idPrefix, after)
}

// documentsBelow is Documents for ids below a key.
func (v *View) documentsBelow(prefix []byte, idPrefix string, after schema.DocumentID) *Documents {
	prefix = slices.Clip(prefix)
	lower := append(prefix, idPrefix...)
	upper := successor(lower)
	if after != "" {
		lower = append(append(prefix, after...), 0)
	}
	return &Documents{rows{view: v, prefix: prefix, lower: lower, upper: upper}}
}

// ID returns the document's id; it is valid until the iterator moves.
func (d *Documents) ID() []byte { return d.it.Key()[len(d.prefix):] }

// Record returns the document; its Body is valid until the iterator moves and
// must not be changed.
func (d *Documents) Record() (Record, error) {
	value, err := d.it.ValueAndErr()
	if err != nil {
		return Record{}, err
	}
	return decodeRecord(value)
}

// rows iterates over the keys of a View with a prefix. A move returns true if it arrives
// at one; false means the end or an Error. It creates Pebble's iterator at the first move:
// a query plan may make many and use few.
type rows struct {
	view                 *View
	prefix, lower, upper []byte
	it                   *pebble.Iterator
	err                  error
	scratch              []byte
}

// open creates the iterator at its first use; false if that failed.
func (r *rows) open() bool {
	if r.it == nil && r.err == nil {
		r.it, r.err = r.view.moment.iterate(r.lower, r.upper)
	}
	return r.err == nil
}

// First moves to the first row.
func (r *rows) First() bool { return r.open() && r.it.First() }

// Last moves to the last row.
func (r *rows) Last() bool { return r.open() && r.it.Last() }

// Next moves to the next row, if unpositioned to the first.
func (r *rows) Next() bool {
	if r.it == nil {
		return r.First()
	}
	return r.it.Next()
}

// key returns a key with the prefix, valid until the next one.
func (r *rows) key(a, b []byte) []byte {
	r.scratch = append(append(append(r.scratch[:0], r.prefix...), a...), b...)
	return r.scratch
}

// Error returns why the iterator could not move.
func (r *rows) Error() error {
	if r.it == nil {
		return r.err
	}
	return r.it.Error()
}

// Close closes the iterator and returns the error that ended it, if any.
func (r *rows) Close() error {
	if r.it == nil {
		return r.err
	}
	err := errors.Join(r.it.Error(), r.it.Close())
	r.it = nil
	if r.err == nil {
		r.err = errClosed
	}
	return err
}

// errClosed is the error of a move after Close.
var errClosed = errors.New("projection: the iterator is closed")
