package projections

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// moment is all of Pebble as it is when the moment is made. It is an iterator,
// which all others are clones of. A snapshot would do as well, but when one is
// closed Pebble looks for compactions, under the lock that writes take. One
// goroutine uses it at a time.
type moment struct{ it *pebble.Iterator }

func (s *Store) moment() (moment, error) {
	it, err := s.db.NewIter(nil)
	return moment{it}, err
}

// get calls read with the value of a key, which is valid until the next get, if
// there is one. Lookups in the order of an index come back to where the
// iterator has been.
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

// close lets go of the moment, after the iterators that were made of it.
func (m moment) close() error {
	if m.it == nil {
		return nil
	}
	return errors.Join(m.it.Error(), m.it.Close())
}
