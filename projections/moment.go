package projections

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// moment is Pebble's state at its creation: an iterator that all others are cloned
// from. Closing a Pebble snapshot instead would look for compactions under the lock
// of writes. It is not safe for concurrent use. Every read through one moment sees the
// same batches, whatever is folded meanwhile. Pebble keeps the files of the moment until
// it is closed.
type moment struct{ it *pebble.Iterator }

func (s *Store) moment() (moment, error) {
	it, err := s.db.NewIter(nil)
	return moment{it}, err
}

// get calls read with the value of a key, if it exists; the value is valid until the
// next get. Lookups in the order of an index return to earlier iterator positions.
func (m moment) get(key []byte, read func(value []byte) error) (ok bool, err error) {
	if !m.it.SeekPrefixGE(key) {
		return false, m.it.Error()
	}
	value, err := m.it.ValueAndErr()
	if err == nil {
		err = read(value)
	}
	return err == nil, err
}

// iterate returns an iterator over the keys in [lower, upper).
func (m moment) iterate(lower, upper []byte) (*pebble.Iterator, error) {
	return m.it.Clone(pebble.CloneOptions{IterOptions: &pebble.IterOptions{LowerBound: lower, UpperBound: upper}})
}

// close releases the moment; close the iterators made from it before.
func (m moment) close() error {
	if m.it == nil {
		return nil
	}
	return errors.Join(m.it.Error(), m.it.Close())
}
