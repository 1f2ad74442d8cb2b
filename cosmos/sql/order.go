package sql

import (
	"iter"
	"math"
)

// Ordered reports whether the query has ORDER BY, and each row depends on its item alone, so
// that a page of rows can go on after an item: see First.
func (q *Query) Ordered() bool {
	return q.orderBy != nil && !q.distinct && q.aggregates == nil && q.skip == 0 && q.end == math.MaxInt
}

// First returns the first n items that satisfy the condition of an Ordered query, in its
// order; those with equal keys as they came. For errors and memory see Run.
func (q *Query) First(n int, items iter.Seq2[[]byte, error], room int) iter.Seq2[[]byte, error] {
	first := *q
	first.row, first.end = pathOf(nil), n
	return first.Run(items, room)
}

// Key returns bytes that sort items as ORDER BY does.
func (q *Query) Key(item []byte) []byte { return (&run{Query: q}).key(item) }

// Row returns the row that an item becomes, empty if that is undefined.
func (q *Query) Row(item []byte) []byte { return q.row.eval(item) }
