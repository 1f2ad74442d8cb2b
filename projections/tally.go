package projections

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// tallyStep is the number of entries between two calls of step.
const tallyStep = 256

// Tally counts the entries of one expiry order of the collection by second:
// counts[0] before ends[0], counts[i] in [ends[i-1], ends[i]), the last the rest.
// ends must not descend. It calls step with the number of entries read since the
// last call, and returns step's error.
//
// Since the total is known, it does not read the part that seems largest. A forecast asks
// for many parts, and its cost is the entries that it reads.
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

// tally is one call of Tally.
type tally struct {
	view   *View
	queue  Queue
	ends   []int64
	counts []int64
	step   func(entries int) error
}

// bound returns the key at which a part begins.
func (t *tally) bound(part int) []byte {
	switch {
	case part == 0:
		return queueKey(nil, t.queue)
	case part > len(t.ends):
		return successor(queueKey(nil, t.queue))
	}
	return expiryKey(nil, t.queue, max(t.ends[part-1], 0), "")
}

// largest returns the part that takes more of the disk than all others together, if
// there is one, else any: it bisects into the larger half. Memtables do not count;
// they are small. The estimate is by Pebble's table sizes and blocks. An error of it costs
// time, not correctness: any part may be the one that is not counted.
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

// bytes returns about the disk bytes of the parts [low, high).
func (t *tally) bytes(low, high int) (uint64, error) {
	lower, upper := t.bound(low), t.bound(high)
	if string(lower) >= string(upper) {
		return 0, nil
	}
	return t.view.store.db.EstimateDiskUsage(lower, upper)
}

// count counts the parts [low, high).
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
