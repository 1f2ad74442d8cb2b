package sql

// Sorted reports whether the rows of the query come in the order of keys, by ORDER BY, DISTINCT
// or GROUP BY, so that a page of rows can go on after a key.
func (q *Query) Sorted() bool {
	return q.groupBy != nil || (q.orderBy != nil || q.distinct) && q.aggregates == nil
}

// Part returns the query for the next n rows at most, once some were found. A page of the
// query asks for n rows after those found: OFFSET is done with after the first page, and
// LIMIT counts on.
func (q *Query) Part(found, n int) *Query {
	part := *q
	if found > 0 {
		part.skip, part.end = 0, q.end-q.skip-found
		if q.aggregates != nil && q.groupBy == nil {
			part.end = 0 // it has one row
		}
	}
	part.end = min(part.end, part.skip+n)
	return &part
}
