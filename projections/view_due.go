package projections

import (
	"encoding/binary"
	"errors"

	"github.com/lapsedb/lapse/schema"
)

// Due iterates over the documents of a View that have a deadline, in the order of deadline
// and id: it merges both expiry orders. Next returns true if it arrives at a document; false
// means the end or an Error. The two orders differ by the policy: in one the second of a
// key is the deadline, in the other the _ts, and the deadline later by defaultTtl. Each
// side is sorted by deadline, since later is the same for all its entries. An order that
// does not expire under the policy has no side.
type Due struct {
	sides []dueSide
	at    *dueSide // nil before the first Next
	began bool
}

// dueSide is one expiry order, at an entry or at its end.
type dueSide struct {
	rows     rows
	order    Order
	later    int64 // seconds from an entry's second to its deadline
	valid    bool
	deadline int64
}

// Due returns an iterator over the documents with a deadline in [from, until), unix
// seconds. Of those due at from it returns only ids after the given one, all if that is
// empty. The first bound needs care: an inheriting document's second is deadline minus
// defaultTtl, which may lie before 1970, and keys hold no negative numbers.
func (v *View) Due(from int64, after schema.DocumentID, until int64) *Due {
	d := &Due{}
	for _, order := range []Order{ByDeadline, ByTimestamp} {
		later, ok := DueAt(v.collection, order, 0)
		if !ok {
			continue
		}
		q := Queue{v.collection.Incarnation, order}
		lower := expiryKey(nil, q, max(from-later, 0), after)
		if from < later {
			lower = queueKey(nil, q)
		} else if after != "" {
			lower = append(lower, 0)
		}
		upper := expiryKey(nil, q, max(until-later, 0), "")
		if string(lower) > string(upper) {
			upper = lower // empty
		}
		d.sides = append(d.sides, dueSide{rows: rows{view: v, prefix: queueKey(nil, q), lower: lower, upper: upper}, order: order, later: later})
	}
	return d
}

// read stores whether and where a side is after a move.
func (s *dueSide) read(moved bool) {
	if s.valid = moved; moved {
		s.deadline = int64(binary.BigEndian.Uint64(s.rows.it.Key()[queueKeyBytes:])) + s.later
	}
}

// id returns the id of the entry at which the side is.
func (s *dueSide) id() []byte { return s.rows.it.Key()[queueKeyBytes+8:] }

// Next moves to the next document. Only the side that was returned last moves; the other
// keeps its entry.
func (d *Due) Next() bool {
	for i := range d.sides {
		if s := &d.sides[i]; !d.began || s == d.at {
			s.read(s.rows.Next())
		}
	}
	d.began, d.at = true, nil
	for i := range d.sides {
		s := &d.sides[i]
		if s.valid && (d.at == nil || s.deadline < d.at.deadline || s.deadline == d.at.deadline && string(s.id()) < string(d.at.id())) {
			d.at = s
		}
	}
	return d.at != nil && d.Error() == nil
}

// ID returns the document's id; it is valid until the iterator moves.
func (d *Due) ID() []byte { return d.at.id() }

// Deadline returns the document's deadline, in unix seconds.
func (d *Due) Deadline() int64 { return d.at.deadline }

// Error returns why the iterator could not move.
func (d *Due) Error() (err error) {
	for i := range d.sides {
		err = errors.Join(err, d.sides[i].rows.Error())
	}
	return err
}

// Close closes the iterator and returns the error that ended it, if any.
func (d *Due) Close() (err error) {
	for i := range d.sides {
		err = errors.Join(err, d.sides[i].rows.Close())
	}
	return err
}
