package projections

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lapsedb/lapse/schema"
)

// Documents iterates over the documents of a View in the order of their ids, expired
// ones included. A move returns true if it arrives at a document; false means the end
// or an Error.
type Documents struct {
	rows rows
}

// Documents returns an iterator over the documents with ids after the given one, all
// if it is empty. It is unpositioned, and costs nothing until it moves.
func (v *View) Documents(after schema.DocumentID) *Documents {
	prefix := v.documentKey(nil, nil)
	lower := append(prefix[:len(prefix):len(prefix)], after...)
	if after != "" {
		lower = append(lower, 0)
	}
	return &Documents{rows{view: v, prefix: prefix, lower: lower, upper: successor(prefix)}}
}

// First moves to the first document.
func (d *Documents) First() bool { return d.rows.first() }

// Last moves to the last document.
func (d *Documents) Last() bool { return d.rows.last() }

// Next moves to the next document, if unpositioned to the first.
func (d *Documents) Next() bool { return d.rows.next() }

// Prev moves to the previous document, if unpositioned to the last.
func (d *Documents) Prev() bool { return d.rows.prev() }

// SeekGE moves to the first document whose id is not before the given one.
func (d *Documents) SeekGE(id []byte) bool {
	return d.rows.open() && d.rows.it.SeekGE(d.rows.key(id, nil))
}

// SeekLT moves to the last document whose id is before the given one.
func (d *Documents) SeekLT(id []byte) bool {
	return d.rows.open() && d.rows.it.SeekLT(d.rows.key(id, nil))
}

// ID returns the document's id; it is valid until the iterator moves.
func (d *Documents) ID() []byte { return d.rows.it.Key()[len(d.rows.prefix):] }

// Record returns the document; its Body is valid until the iterator moves and
// must not be changed.
func (d *Documents) Record() (Record, error) {
	value, err := d.rows.it.ValueAndErr()
	if err != nil {
		return Record{}, err
	}
	return decodeRecord(value)
}

// Error returns why the iterator could not move.
func (d *Documents) Error() error { return d.rows.error() }

// Close closes the iterator and returns the error that ended it, if any.
func (d *Documents) Close() error { return d.rows.close() }

// rows iterates over the keys of a View with a prefix.
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

func (r *rows) first() bool { return r.open() && r.it.First() }

func (r *rows) last() bool { return r.open() && r.it.Last() }

func (r *rows) next() bool {
	if r.it == nil {
		return r.first()
	}
	return r.it.Next()
}

func (r *rows) prev() bool {
	if r.it == nil {
		return r.last()
	}
	return r.it.Prev()
}

// key returns a key with the prefix, valid until the next one.
func (r *rows) key(a, b []byte) []byte {
	r.scratch = append(append(append(r.scratch[:0], r.prefix...), a...), b...)
	return r.scratch
}

func (r *rows) error() error {
	if r.it == nil {
		return r.err
	}
	return r.it.Error()
}

func (r *rows) close() error {
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

var errClosed = errors.New("projection: the iterator is closed")
