package client

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"time"
)

// MaxPageSize is the maximum number of documents in a page.
const MaxPageSize = 1000

const defaultPageSize = 100

// query holds the options of Query.
type query struct {
	request queryRequest
	limit   int // documents in total, 0: all
	size    int // documents per page, 0: not set
	opts    []RequestOption
	plan    *Plan

	err error // of the first invalid option
}

type queryRequest struct {
	Where     string          `json:"where,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	OrderBy   []ordering      `json:"orderBy,omitempty"`
	Select    []string        `json:"select,omitempty"`
	Limit     int             `json:"limit,omitempty"`
	Cursor    string          `json:"cursor,omitempty"`
	Count     bool            `json:"count,omitempty"`
	Explain   bool            `json:"explain,omitempty"`
	IDPrefix  *string         `json:"idPrefix,omitempty"`
	Held      bool            `json:"held,omitempty"`
	Due       *dueRequest     `json:"due,omitempty"`
	Deadlines bool            `json:"deadlines,omitempty"`
}

type ordering struct {
	Path string    `json:"path"`
	Desc Direction `json:"desc,omitempty"`
}

// QueryOption is an option of a query. Every RequestOption, such as MinSeq, is one too.
type QueryOption interface{ change(*query) }

type queryOption func(*query)

func (opt queryOption) change(q *query) { opt(q) }

func (opt RequestOption) change(q *query) { q.opts = append(q.opts, opt) }

// Where chooses documents by a CEL expression over doc and params; the default is all
// documents. A comparison with a missing member is false.
//
// Pass untrusted values in params, a map or struct that encodes to a JSON object, or
// nil; never put them into the text of the expression.
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

// Direction is ascending or descending.
type Direction bool

// Directions of OrderBy.
const (
	Asc  Direction = false
	Desc Direction = true
)

// OrderBy orders by the value at a JSON pointer such as /total. Repeat it to order
// documents with equal values; the id comes last. The order of types is missing,
// null, false, true, numbers, strings, arrays, objects.
func OrderBy(path string, direction Direction) QueryOption {
	return queryOption(func(q *query) { q.request.OrderBy = append(q.request.OrderBy, ordering{path, direction}) })
}

// Select returns only the members at these JSON pointers, in their place; the default is
// whole documents.
func Select(paths ...string) QueryOption {
	return queryOption(func(q *query) { q.request.Select = append(q.request.Select, paths...) })
}

// Limit ends the query after n documents; the default is no limit.
func Limit(n int) QueryOption {
	return queryOption(func(q *query) {
		if n < 1 {
			q.fail(ErrBadQuery.With("limit %d: use 1 or more, or leave it out for all documents", n))
		}
		q.limit = n
	})
}

// PageSize sets the number of documents in a page, up to MaxPageSize. The default is
// Limit, or 100 without.
func PageSize(n int) QueryOption {
	return queryOption(func(q *query) {
		if n < 1 || n > MaxPageSize {
			q.fail(ErrBadQuery.With("page size %d: use 1 to %d", n, MaxPageSize))
		}
		q.size = n
	})
}

// FromCursor continues after a page of the same query; an empty cursor is the beginning.
func FromCursor(cursor string) QueryOption {
	return queryOption(func(q *query) { q.request.Cursor = cursor })
}

// IDPrefix chooses only documents whose id begins with these 1 to 255 bytes. The server
// reads no others: it needs no index. It excludes Due.
func IDPrefix(prefix string) QueryOption {
	return queryOption(func(q *query) { q.request.IDPrefix = &prefix })
}

// Held chooses only held documents.
func Held() QueryOption { return queryOption(func(q *query) { q.request.Held = true }) }

type dueRequest struct {
	From  *int64 `json:"from,omitempty"`
	Until any    `json:"until,omitempty"`
}

// Due chooses documents with a deadline in [from, until), ordered by deadline and id, and
// sets the Deadline of each Item. A zero time is no bound. It excludes OrderBy.
func Due(from, until time.Time) QueryOption {
	return queryOption(func(q *query) {
		q.request.Due = &dueRequest{}
		if !from.IsZero() {
			q.request.Due.From = new(secondFrom(from))
		}
		if !until.IsZero() {
			q.request.Due.Until = secondFrom(until)
		}
	})
}

// DueWithin is Due for the documents that expire within d from now, by the server's clock.
func DueWithin(d time.Duration) QueryOption {
	return queryOption(func(q *query) {
		q.request.Due = &dueRequest{Until: fmt.Sprintf("%ds", int64(d/time.Second))}
		if d < time.Second {
			q.fail(ErrBadQuery.With("due within %s: use a second or more", d))
		}
	})
}

// Deadlines sets the Lifetime of each Item, and adds to its Value the members _deadline, unix
// seconds or null, _rule, where there is one, and of a held document _hold, the reason.
func Deadlines() QueryOption { return queryOption(func(q *query) { q.request.Deadlines = true }) }

// Explain sets plan to the plan of the query; its counts are sums over the pages so far.
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

// pageSize returns the size of the first page.
func (q *query) pageSize() int {
	size := cmp.Or(q.size, min(q.limit, MaxPageSize), defaultPageSize)
	if q.limit > 0 {
		size = min(size, q.limit)
	}
	return size
}
