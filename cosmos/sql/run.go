package sql

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/lapsedb/lapse/schema/values"
)

// ErrTooLarge says that a query goes beyond a limit of its evaluation. The gateway answers
// it by a 400, with the text of the error that wraps it.
var ErrTooLarge = errors.New("the query is too large")

var errKept = fmt.Errorf("%w: ORDER BY, DISTINCT and GROUP BY keep too much: narrow it by WHERE or TOP", ErrTooLarge)

// rowBytes is about what a kept row needs besides its content.
const rowBytes = 100

// Row is a row of a query. Rows of a Sorted query have keys in the order of their bytes.
type Row struct {
	JSON, Key []byte
	Nth       int // row of its item, from 1 on, if rows are not sorted
}

// Run evaluates the query over items, JSON objects that are valid until the next one, and
// returns its rows, JSON that is valid until the next one. Without ORDER BY, DISTINCT, GROUP BY
// and aggregates each item becomes a row at once, and no item is read after the last row of TOP
// or LIMIT. Rows of DISTINCT without ORDER BY come in the order of their values, groups in that of
// their values in GROUP BY.
//
// An error of items ends the rows. So does ErrTooLarge, when ORDER BY, DISTINCT and
// GROUP BY would keep more than room bytes; ORDER BY with TOP or LIMIT keeps at most twice their rows.
func (q *Query) Run(items iter.Seq2[[]byte, error], room int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		noTie := func() string { return "" }
		for row, err := range q.After(nil, items, noTie, room) {
			if !yield(row.JSON, err) {
				return
			}
		}
	}
}

// After is Run for the rows of a Sorted query whose keys are after a key, nil for all. tie
// returns what sorts items with equal values in ORDER BY, for the item that was read last.
func (q *Query) After(key []byte, items iter.Seq2[[]byte, error], tie func() string, room int) iter.Seq2[Row, error] {
	if len(q.sources) == 0 {
		items = func(yield func([]byte, error) bool) { yield([]byte("{}"), nil) }
	}
	return func(yield func(Row, error) bool) {
		r := run{Query: q, yield: yield, after: key, tie: tie, room: room, ended: q.skip >= q.end, distinctRows: make(map[string]int), groups: q.groups(), env: env{vars: make([]values.Value, q.slots)}}
		if err := r.read(items); err != nil {
			yield(Row{}, err)
		}
	}
}

// run is a query under way. Three kinds of queries go through it:
//
//	without order   item ─► visit ─► emit                              nothing is kept
//	sorted          item ─► visit ─► sorted ─► finish: sort, emit      rows are kept
//	groups          item ─► visit ─► groups ─► finish: emit            totals are kept
//
// What is kept is counted against room, whatever its kind.
type run struct {
	*Query
	yield        func(Row, error) bool
	after        []byte
	tie          func() string
	room         int               // bytes that may still be kept
	rows         int               // found so far
	nth          int               // row of the item, from 1 on
	drop         int               // first rows of the item that are left out
	ended        bool              // no further row is wanted
	sorted       []Row             // for ORDER BY and DISTINCT
	distinctRows map[string]int    // in sorted, by the keys of their values
	groups       map[string]*group // by the keys of GROUP BY; nil without it and aggregates
	env          env
}

// bytes returns about what a kept row needs.
func (r Row) bytes() int { return rowBytes + len(r.Key) + len(r.JSON) }

// read reads the items until they or the wanted rows end. A limit that was exceeded within
// an item ends it after that item.
func (r *run) read(items iter.Seq2[[]byte, error]) error {
	if r.ended {
		return nil
	}
	for item, err := range items {
		if err != nil {
			return err
		}
		r.env.vars[0], r.nth, r.drop = item, 0, 0
		if r.dropped != nil {
			r.drop = r.dropped()
		}
		r.each(&r.env, 0, func() bool {
			err = r.visit()
			return err == nil && !r.ended
		})
		if err = cmp.Or(r.env.err, err); err != nil || r.ended {
			return err
		}
	}
	r.finish()
	return r.env.err
}

// visit handles a combination that satisfies the condition. A key ends with the tie, and
// with the row's number for a JOIN: so no two rows have the same, and a page can go on
// after one.
//
// With TOP or LIMIT twice as many rows are kept as wanted, and half of them dropped at
// each sort: the cost is that of sorting a few rows often, in place of all once.
func (r *run) visit() error {
	if r.groups != nil {
		return r.addToGroup()
	}
	row := r.row.eval(&r.env)
	switch {
	case len(row) == 0:
		return nil
	case r.distinct:
		return r.addDistinct(r.key(), row)
	case r.orderBy == nil:
		r.emit(Row{JSON: row})
		return nil
	}
	key := append(r.key(), r.tie()...)
	if r.nth++; r.Joins() {
		key = binary.BigEndian.AppendUint64(key, uint64(r.nth))
	}
	if !r.follows(key) {
		return nil
	}
	kept := Row{JSON: slices.Clone(row), Key: key}
	r.sorted = append(r.sorted, kept)
	if len(r.sorted)/2 >= r.end {
		r.sort(r.end)
	}
	return r.charge(kept.bytes())
}

// follows reports whether a row with a key is wanted.
func (r *run) follows(key []byte) bool { return r.after == nil || bytes.Compare(key, r.after) > 0 }

// maxValue is the longest key of a value that stands as it is in that of a row of DISTINCT or
// GROUP BY.
const maxValue = 256

// shorten cuts the key of a value before a digest. It bounds the memory of keys. Equal
// values still have equal keys; two long ones that begin alike sort by their digests, an
// order like any other.
func shorten(key []byte) []byte {
	if len(key) > maxValue {
		digest := sha256.Sum256(key)
		key = append(key[:maxValue], digest[:]...)
	}
	return key
}

// group is what is known of items with equal values in GROUP BY.
type group struct {
	kept   []values.Value // of the first item, not nil
	totals []aggregate
}

// groups returns the groups before any item: aggregates without GROUP BY have one.
func (q *Query) groups() map[string]*group {
	switch {
	case q.groupBy != nil:
		return make(map[string]*group)
	case q.aggregates != nil:
		return map[string]*group{"": {totals: slices.Clone(q.aggregates)}}
	}
	return nil
}

// addToGroup adds the item to its group. The first item of a group makes it, and keeps the
// values of the paths outside aggregates.
func (r *run) addToGroup() error {
	var key []byte
	for _, x := range r.groupBy {
		key = values.AppendKey(key, x.eval(&r.env))
	}
	key = shorten(key)
	g, bytes := r.groups[string(key)], 0
	if g == nil {
		g = &group{kept: make([]values.Value, len(r.kept)), totals: slices.Clone(r.aggregates)}
		r.groups[string(key)] = g
		bytes = (2+len(g.kept)+len(g.totals))*rowBytes + len(key)
		for i, x := range r.kept {
			g.kept[i] = slices.Clone(x.eval(&r.env))
			bytes += len(g.kept[i])
		}
	}
	for i := range g.totals {
		a := &g.totals[i]
		before := len(a.total)
		a.add(a.of.eval(&r.env))
		bytes += len(a.total) - before
	}
	return r.charge(bytes)
}

// addDistinct adds a row, given the key of ORDER BY, unless an equal one comes before it.
// With an order the first of equal rows in that order stays. A row that replaces one gives
// its room back.
func (r *run) addDistinct(key []byte, row values.Value) error {
	value := shorten(values.AppendKey(nil, row))
	key = append(key, value...)
	i, found := r.distinctRows[string(value)]
	if found && bytes.Compare(key, r.sorted[i].Key) >= 0 {
		return nil
	}
	kept := Row{JSON: slices.Clone(row), Key: key}
	if found {
		r.room += r.sorted[i].bytes()
		r.sorted[i] = kept
		return r.charge(kept.bytes())
	}
	r.distinctRows[string(value)] = len(r.sorted)
	r.sorted = append(r.sorted, kept)
	return r.charge(kept.bytes() + rowBytes + len(value))
}

// key returns bytes that sort as ORDER BY says.
func (r *run) key() (key []byte) {
	for _, o := range r.orderBy {
		start := len(key)
		key = values.AppendKey(key, o.path.eval(&r.env))
		for i := start; o.descending && i < len(key); i++ {
			key[i] ^= 0xff // no key is a prefix of another
		}
	}
	return key
}

// sort sorts the rows, those with equal keys as their items came, and drops those from
// limit on.
func (r *run) sort(limit int) {
	slices.SortStableFunc(r.sorted, func(a, b Row) int { return bytes.Compare(a.Key, b.Key) })
	limit = min(limit, len(r.sorted))
	for _, row := range r.sorted[limit:] {
		r.room += row.bytes()
	}
	clear(r.sorted[limit:])
	r.sorted = r.sorted[:limit]
}

// charge counts bytes that stay in memory.
func (r *run) charge(bytes int) error {
	if r.room -= bytes; r.room < 0 {
		return errKept
	}
	return nil
}

// emit passes a row on, unless it is outside the window. It ends the run with the last row
// that is wanted, so that no further item is read.
func (r *run) emit(row Row) {
	if r.nth++; r.nth <= r.drop {
		return
	}
	r.rows++
	row.Nth = r.nth
	r.ended = r.rows > r.skip && !r.yield(row, nil) || r.rows == r.end
}

// finish emits the rows that need all items. env.kept tells paths to take the group's
// values in place of an item's.
func (r *run) finish() {
	for _, key := range slices.Sorted(maps.Keys(r.groups)) {
		if !r.follows([]byte(key)) {
			continue
		}
		g := r.groups[key]
		r.env.kept, r.env.totals = g.kept, nil
		for i := range g.totals {
			r.env.totals = append(r.env.totals, g.totals[i].result())
		}
		if row := r.row.eval(&r.env); len(row) > 0 {
			r.emit(Row{JSON: row, Key: []byte(key)})
		}
		if r.ended {
			return
		}
	}
	r.sort(math.MaxInt)
	for _, kept := range r.sorted {
		if r.follows(kept.Key) {
			r.emit(kept)
		}
		if r.ended {
			return
		}
	}
}
