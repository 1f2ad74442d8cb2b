// Package sql parses and evaluates the queries of Azure Cosmos DB's API for NoSQL that its
// SDKs and the users of its TTL send. Parse refuses anything else by an error that names it.
//
// An expression without a value is undefined: a member that an item lacks, 1 < "2".
// Undefined columns and rows are left out, and only true satisfies a condition. = and !=
// compare values of different types as unequal: Microsoft's page calls that undefined, but
// its own interpreter does this, and programs rely on it (c.x != null). <, <=, > and >= of
// different types, of arrays and of objects are undefined.
//
// Values compare and sort as in package schema/values, so integers are exact within 64
// bits; arithmetic and sums are in float64. Rows have numbers as their items have them.
package sql

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/lapsedb/lapse/schema/values"
)

// MaxBytes limits the text of a query.
const MaxBytes = 256 << 10

// Parameter is a parameter of a query, as a request has it.
type Parameter struct {
	Name  string          `json:"name"`  // with its @
	Value json.RawMessage `json:"value"` // undefined if absent
}

// Query is a parsed query. It is safe for concurrent use. It holds no item and no state
// but Now: a run has its own env. Part and Without return copies that share the compiled
// expressions.
type Query struct {
	sources    []source // none without FROM
	slots      int
	where, row *expr
	value      bool // SELECT VALUE
	distinct   bool
	aggregates []aggregate
	groupBy    []*expr
	kept       []*expr // what a group keeps of its first item
	orderBy    []order
	skip, end  int // the result is the rows from skip to before end

	dropped func() int // nil for none

	// Now is what GetCurrentDateTime says, in ms since 1970; nil if the query does not ask. Set
	// it before a run.
	Now *int64
}

type order struct {
	path       *expr
	descending bool
}

// Equality says that the condition holds only for items whose value at Path equals one of
// Values.
type Equality struct {
	Path   values.Pointer // of members, even where a token is digits
	Values []values.Value // JSON, at least one; they may repeat
	root   *reference
}

// Parse reads a query. Its error is one line that says what is wrong or not served. The
// query keeps the memory of params. The condition of a PATCH, FROM and WHERE, is one with
// SELECT * before it.
func Parse(query string, params []Parameter) (*Query, error) {
	if len(query) > MaxBytes {
		return nil, fmt.Errorf("the query has %d bytes: use at most %d", len(query), MaxBytes)
	}
	if !utf8.ValidString(query) {
		return nil, errors.New("the query is not UTF-8")
	}
	p := parser{text: query, params: make(map[string]values.Value)}
	p.q = Query{where: literalOf(boolean(true)), end: math.MaxInt}
	for _, param := range params {
		v := bytes.TrimSpace(param.Value)
		if len(v) > 0 && !(json.Valid(v) && utf8.Valid(v)) {
			return nil, fmt.Errorf("parameter %.40q is not JSON in UTF-8", param.Name)
		}
		p.params[param.Name] = v
	}
	p.advance()
	p.query()
	if p.token.kind != end {
		p.unexpected("the end of the query")
	}
	if p.err != nil {
		return nil, p.err
	}
	p.q.Now, p.q.slots = p.now, p.slots+1
	return &p.q, nil
}

// HasSelectValue reports whether the query is SELECT VALUE: its rows need not be objects.
func (q *Query) HasSelectValue() bool { return q.value }

// NeedsPlan reports whether a row depends on more than its item: ORDER BY, TOP, OFFSET,
// DISTINCT, GROUP BY or an aggregate. Cosmos DB does not serve such a query across partitions
// without a plan.
func (q *Query) NeedsPlan() bool {
	return q.distinct || q.aggregates != nil || q.groupBy != nil || q.orderBy != nil || q.skip > 0 || q.end < math.MaxInt
}

// Equalities returns what the condition demands of paths, in its order; it may demand
// more. They come from =, IN and IS_NULL with literals and parameters, and from AND and OR
// of these. The caller reads by them what may match; whoever ignores them reads all and
// gets the same rows.
func (q *Query) Equalities() (all []Equality) {
	for _, e := range q.where.demands {
		if e.root.slot == 0 {
			all = append(all, e)
		}
	}
	return all
}

// Joins reports whether an item may become several rows.
func (q *Query) Joins() bool {
	return slices.ContainsFunc(q.sources, func(s source) bool { return s.each })
}

// Without returns the query without the first rows of an item, as many as rows says when the
// item is read. A page may end between two rows of an item that a JOIN makes: the next
// page begins with that item again.
func (q *Query) Without(rows func() int) *Query {
	part := *q
	part.dropped = rows
	return &part
}

// Matches reports whether an item, a JSON object, satisfies the condition.
func (q *Query) Matches(item []byte) (bool, error) {
	e := env{vars: make([]values.Value, q.slots)}
	e.vars[0] = item
	return q.where.eval(&e).Kind() == values.True && e.err == nil, e.err
}
