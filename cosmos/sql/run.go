package sql

import (
	"bytes"
	"errors"
	"iter"
	"math"
	"slices"
	"strconv"

	"github.com/lapsedb/lapse/schema/values"
)

// ErrTooLarge says that ORDER BY or DISTINCT would keep more bytes than Run allows.
var ErrTooLarge = errors.New("ORDER BY and DISTINCT keep too much: narrow the query by WHERE or TOP")

// rowBytes is about what a kept row needs besides its content.
const rowBytes = 100

// Run evaluates the query over items, JSON objects that are valid until the next one, and
// returns its rows, JSON that is valid until the next one. Without ORDER BY and aggregates
// each item becomes a row at once, and no item is read after the last row of TOP or LIMIT.
//
// An error of items ends the rows. So does ErrTooLarge, when ORDER BY and DISTINCT would
// keep more than room bytes; ORDER BY with TOP or LIMIT keeps at most twice their rows.
func (q *Query) Run(items iter.Seq2[[]byte, error], room int) iter.Seq2[[]byte, error] {
	if q.from == "" {
		items = func(yield func([]byte, error) bool) { yield([]byte("{}"), nil) }
	}
	return func(yield func([]byte, error) bool) {
		r := run{Query: q, yield: yield, room: room, ended: q.skip >= q.end, seen: make(map[string]bool), totals: slices.Clone(q.aggregates)}
		if err := r.read(items); err != nil {
			yield(nil, err)
		}
	}
}

// run is a query under way.
type run struct {
	*Query
	yield  func([]byte, error) bool
	room   int             // bytes that may still be kept
	rows   int             // found so far
	ended  bool            // no further row is wanted
	seen   map[string]bool // keys of rows, for DISTINCT
	sorted []sortedRow     // for ORDER BY
	totals []aggregate
}

type sortedRow struct{ key, row []byte }

func (r sortedRow) bytes() int { return rowBytes + len(r.key) + len(r.row) }

func (r *run) read(items iter.Seq2[[]byte, error]) error {
	if r.ended {
		return nil
	}
	for item, err := range items {
		if err == nil && r.Matches(item) {
			err = r.visit(item)
		}
		if err != nil || r.ended {
			return err
		}
	}
	return r.finish()
}

// visit handles an item that satisfies the condition.
func (r *run) visit(item []byte) error {
	for i := range r.totals {
		r.totals[i].add(r.totals[i].of.eval(item))
	}
	if r.totals != nil {
		return nil
	}
	row := r.row.eval(item)
	if r.orderBy == nil || len(row) == 0 {
		return r.emit(row)
	}
	kept := sortedRow{r.key(item), slices.Clone(row)}
	r.sorted = append(r.sorted, kept)
	if !r.distinct && len(r.sorted)/2 >= r.end {
		r.sort(r.end)
	}
	return r.keep(kept.bytes())
}

// key returns bytes that sort as ORDER BY says.
func (r *run) key(item []byte) (key []byte) {
	for _, o := range r.orderBy {
		start := len(key)
		key = values.AppendKey(key, o.path.eval(item))
		for i := start; o.descending && i < len(key); i++ {
			key[i] ^= 0xff // no key is a prefix of another
		}
	}
	return key
}

// sort sorts the rows, those with equal keys as their items came, and drops those from
// limit on.
func (r *run) sort(limit int) {
	slices.SortStableFunc(r.sorted, func(a, b sortedRow) int { return bytes.Compare(a.key, b.key) })
	limit = min(limit, len(r.sorted))
	for _, row := range r.sorted[limit:] {
		r.room += row.bytes()
	}
	clear(r.sorted[limit:])
	r.sorted = r.sorted[:limit]
}

func (r *run) keep(bytes int) error {
	if r.room -= bytes; r.room < 0 {
		return ErrTooLarge
	}
	return nil
}

// emit passes a row on, unless it is undefined, repeats one or is outside the window.
func (r *run) emit(row values.Value) error {
	if len(row) == 0 {
		return nil
	}
	if r.distinct {
		key := string(values.AppendKey(nil, row))
		if r.seen[key] {
			return nil
		}
		r.seen[key] = true
		if err := r.keep(rowBytes + len(key)); err != nil {
			return err
		}
	}
	r.rows++
	r.ended = r.rows > r.skip && !r.yield(row, nil) || r.rows == r.end
	return nil
}

// finish emits the rows that need all items.
func (r *run) finish() error {
	if r.totals != nil {
		var names []string
		var results []*expr
		for i := range r.totals {
			names, results = append(names, strconv.Itoa(i)), append(results, literalOf(r.totals[i].result()))
		}
		return r.emit(r.row.eval(objectOf(names, results).eval(nil)))
	}
	r.sort(math.MaxInt)
	for _, kept := range r.sorted {
		if err := r.emit(kept.row); err != nil || r.ended {
			return err
		}
	}
	return nil
}
