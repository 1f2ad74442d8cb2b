package projections

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// tallyStep is after how many entries a Tally calls step.
const tallyStep = 256

// Tally counts the entries of one of the collection's expiry orders by their
// seconds: counts[0] of those before ends[0], counts[i] of those from ends[i-1]
// on and before ends[i], and at last of the rest. ends do not go back. Now and
// then it calls step with how many entries it looked at since the last call, and
// ends with the error that step returns.
//
// How many there are in all is known, so what seems to be the largest part is
// not looked at.
func (v *View) Tally(order Order, ends []int64, step func(entries int) error) (counts []int64, err error) {
	total := v.stats.own
	if order == ByTimestamp {
		total = v.stats.inherited
	}
	counts = make([]int64, len(ends)+1)
	if total == 0 {
		return counts, nil
	}
	t := tally{view: v, queue: Queue{v.collection.Incarnation, order}, ends: ends, counts: counts, step: step}
	skipped, err := t.largest()
	if err != nil {
		return nil, err
	}
	for _, parts := range [][2]int{{0, skipped}, {skipped + 1, len(counts)}} {
		if err := t.count(parts[0], parts[1]); err != nil {
			return nil, err
		}
	}
	rest := total
	for _, n := range counts {
		rest -= n
	}
	if rest < 0 {
		return nil, fmt.Errorf("projection: collection %s has %d more in expiry order %d than it counts", v.collection.Name, -rest, order)
	}
	counts[skipped] = rest
	return counts, nil
}

// tally is a Tally under way.
type tally struct {
	view   *View
	queue  Queue
	ends   []int64
	counts []int64
	step   func(entries int) error
}

// bound is the key before which the parts below number part end.
func (t *tally) bound(part int) []byte {
	switch {
	case part == 0:
		return queueKey(nil, t.queue)
	case part > len(t.ends):
		return successor(queueKey(nil, t.queue))
	}
	return expiryKey(nil, t.queue, max(t.ends[part-1], 0), "")
}

// largest returns the part that takes most of the disk, if one takes more than
// all others together, and else any: it is found by always going on with the
// larger half. What is only in memory does not count, and is not that much.
func (t *tally) largest() (part int, err error) {
	low, high := 0, len(t.counts)
	for high-low > 1 {
		middle := (low + high) / 2
		below, err := t.bytes(low, middle)
		if err != nil {
			return 0, err
		}
		above, err := t.bytes(middle, high)
		if err != nil {
			return 0, err
		}
		if below > above {
			high = middle
		} else {
			low = middle
		}
	}
	return low, nil
}

// bytes is about what the parts from low up to high take of the disk.
func (t *tally) bytes(low, high int) (uint64, error) {
	lower, upper := t.bound(low), t.bound(high)
	if string(lower) >= string(upper) {
		return 0, nil
	}
	return t.view.store.db.EstimateDiskUsage(lower, upper)
}

// count counts the parts from low up to high.
func (t *tally) count(low, high int) (err error) {
	lower, upper := t.bound(low), t.bound(high)
	if low >= high || string(lower) >= string(upper) {
		return nil
	}
	it, err := t.view.moment.iterate(lower, upper)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	part, entries := low, 0
	for ok := it.First(); ok; ok = it.Next() {
		second := int64(binary.BigEndian.Uint64(it.Key()[queueKeyBytes:]))
		for part < len(t.ends) && second >= t.ends[part] {
			part++
		}
		t.counts[part]++
		if entries++; entries == tallyStep {
			if err := t.step(entries); err != nil {
				return err
			}
			entries = 0
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	return t.step(entries)
}
