package client

import (
	"bytes"
	"cmp"
	"encoding/json"
)

// MaxPageSize is how many documents a page may have.
const MaxPageSize = 1000

const defaultPageSize = 100

// query is what the options of Query ask for.
type query struct {
	request queryRequest
	limit   int // documents altogether, 0: all
	size    int // of a page, 0: not said
	opts    []RequestOption
	plan    *Plan

	err error // the first option that is wrong
}

type queryRequest struct {
	Where   string          `json:"where,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	OrderBy []ordering      `json:"orderBy,omitempty"`
	Select  []string        `json:"select,omitempty"`
	Limit   int             `json:"limit,omitempty"`
	Cursor  string          `json:"cursor,omitempty"`
	Count   bool            `json:"count,omitempty"`
	Explain bool            `json:"explain,omitempty"`
}

type ordering struct {
	Path string    `json:"path"`
	Desc Direction `json:"desc,omitempty"`
}

// QueryOption says what a query asks for. A RequestOption, such as MinSeq, is
// one too.
type QueryOption interface{ change(*query) }

type queryOption func(*query)

func (opt queryOption) change(q *query) { opt(q) }

func (opt RequestOption) change(q *query) { q.opts = append(q.opts, opt) }

// Where chooses documents by a CEL expression over doc and params. Without it,
// all. A comparison with a missing member is false.
//
// What comes from outside belongs into params, not into the text of the
// expression: a map or struct that is encoded as documents are, or nil.
func Where(expression string, params any) QueryOption {
	return queryOption(func(q *query) {
		q.request.Where, q.request.Params = expression, nil
		if params == nil {
			return
		}
		text, err := encode(params)
		switch {
		case err != nil:
			q.fail(err)
		case bytes.Equal(text, []byte("null")):
		case !json.Valid(text) || bytes.TrimSpace(text)[0] != '{':
			q.fail(ErrBadQuery.With("params of type %T are not a JSON object: use a map, or a struct, whose members are the params", params))
		default:
			q.request.Params = text
		}
	})
}

// Direction is up or down.
type Direction bool

// Directions of OrderBy.
const (
	Asc  Direction = false
	Desc Direction = true
)

// OrderBy orders by the value at a JSON pointer such as /total; give it again
// for what decides among equals, and the id decides at last. Over types the
// order is missing, null, false, true, numbers, strings, arrays, objects.
func OrderBy(path string, direction Direction) QueryOption {
	return queryOption(func(q *query) { q.request.OrderBy = append(q.request.OrderBy, ordering{path, direction}) })
}

// Select keeps only what is at these JSON pointers, in its place. Without it,
// whole documents.
func Select(paths ...string) QueryOption {
	return queryOption(func(q *query) { q.request.Select = append(q.request.Select, paths...) })
}

// Limit ends the query after n documents. Without it, it goes on to the last.
func Limit(n int) QueryOption {
	return queryOption(func(q *query) {
		if n < 1 {
			q.fail(ErrBadQuery.With("limit %d: use 1 or more, or leave it out for all documents", n))
		}
		q.limit = n
	})
}

// PageSize is how many documents are asked for at once, up to MaxPageSize.
// Without it, as many as Limit, else 100.
func PageSize(n int) QueryOption {
	return queryOption(func(q *query) {
		if n < 1 || n > MaxPageSize {
			q.fail(ErrBadQuery.With("page size %d: use 1 to %d", n, MaxPageSize))
		}
		q.size = n
	})
}

// FromCursor goes on where a page of the same query ended; an empty cursor is
// the beginning.
func FromCursor(cursor string) QueryOption {
	return queryOption(func(q *query) { q.request.Cursor = cursor })
}

// Explain writes into plan how the query was answered: its counts are sums over
// the pages so far.
func Explain(plan *Plan) QueryOption { return queryOption(func(q *query) { q.plan = plan }) }

func newQuery(opts []QueryOption) (*query, error) {
	q := &query{}
	for _, opt := range opts {
		opt.change(q)
	}
	if q.plan != nil {
		*q.plan = Plan{}
	}
	return q, q.err
}

func (q *query) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

// pageSize is how many documents the first page is to have.
func (q *query) pageSize() int {
	size := cmp.Or(q.size, min(q.limit, MaxPageSize), defaultPageSize)
	if q.limit > 0 {
		size = min(size, q.limit)
	}
	return size
}
