// Package query answers queries over the documents of a collection: a condition in CEL, an
// order, a page of results or a count.
//
// A query reads a View at one position of the log, and returns only live documents: it
// checks deadlines itself, again before it replies with a page, and never waits for a
// sweep. It uses an index on a path of the condition or the order if there is one;
// otherwise it scans every document.
//
// The way of a query, by file:
//
//	request.go        body ─► request
//	condition.go      where ─► condition, from the cache in conditions.go
//	evaluation.go     condition and params ─► a test of documents
//	plan.go           condition and order ─► accesses, and the choice of one
//	walk.go, rows.go  access ─► candidates: live documents that match
//	run.go, top.go    candidates ─► in order, up to the limit
//	page.go           documents ─► bytes of the reply, with a cursor of cursor.go
//
// Work is bounded by Limits, and divided into slices so that queries share the processors
// fairly.
package query

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Engine answers queries, each in the caller's goroutine. It is safe for concurrent
// use.
type Engine struct {
	limits     Limits
	pacer      func() func(context.Context, time.Duration)
	compiler   *compiler
	conditions *Conditions
	sealer     sealer
}

// Options of an Engine.
type Options struct {
	Limits
	// Secret authenticates cursors: a cursor made with another secret is refused.
	Secret []byte
	// Pacer returns a function for each query, called after about every sliceTime of
	// work with the time worked since the last call. It may delay the query in favour
	// of others, until ctx is done. None if nil.
	Pacer func() (pace func(ctx context.Context, worked time.Duration))
	// Conditions caches compiled conditions, also of other Engines; one of its own if nil.
	Conditions *Conditions
}

// New returns an Engine.
func New(o Options) (*Engine, error) {
	l := o.Limits.EnsureDefaults()
	c, err := newCompiler(l)
	if err != nil {
		return nil, err
	}
	if o.Conditions == nil {
		o.Conditions = NewConditions()
	}
	return &Engine{limits: l, pacer: o.Pacer, compiler: c, conditions: o.Conditions, sealer: sealer{o.Secret}}, nil
}

// Reply is the answer to a query.
type Reply struct {
	Body []byte // JSON
	Seq  uint64 // sequence of the state that Body describes
}

// Ask is one query to an Engine.
type Ask struct {
	Collection schema.CollectionName
	Body       []byte // the request, JSON
	// Now returns the second for deadlines, given the log time of the state in ms. It
	// is called again before the reply.
	Now func(logTime int64) int64
	// Room is the largest reply in bytes.
	Room int
	// MinSeq is the sequence that the answer must include, even if lazy indexes
	// lag. The store must have folded it.
	MinSeq uint64
}

// Answer answers a query. The error is a *schema.Error if the query is invalid or
// exceeds a limit. The view stays open for the whole query: what is folded meanwhile does
// not change a page.
func (e *Engine) Answer(ctx context.Context, store *projections.Store, ask Ask) (reply Reply, err error) {
	q, fault := parseRequest(ask.Body)
	if fault != nil {
		return reply, fault
	}
	condition, fault := e.condition(&q)
	if fault != nil {
		return reply, fault
	}
	view, ok, err := store.View(ask.Collection)
	if err != nil {
		return reply, err
	}
	if !ok {
		return reply, schema.NoCollection(ask.Collection)
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	reply.Seq = view.Seq()
	if view.Collection().IndexingMode == schema.None {
		return reply, schema.ErrBadQuery.With("collection %s has indexingMode none, which is for reads by id only: set it to consistent or lazy to query", ask.Collection)
	}
	ctx, cancel := context.WithTimeout(ctx, e.limits.Time)
	defer cancel()
	r := &run{
		engine: e, request: &q, view: view, ctx: ctx, began: time.Now(),
		clock: func() int64 { return ask.Now(view.Time()) },
		room:  min(ask.Room, e.limits.Bytes),
	}
	r.planner.unindexed = view.Behind() > 0 && view.Seq()-view.Behind() < ask.MinSeq
	if e.pacer != nil {
		r.pace = e.pacer()
	}
	r.now = r.clock()
	if condition != nil {
		if r.where, fault = condition.evaluate(ctx, q.params, r.worked); fault != nil {
			return reply, fault
		}
	}
	if reply.Body, err = r.answer(); err != nil {
		return reply, e.limits.explain(err)
	}
	return reply, nil
}

// condition returns the compiled condition of a request that has its params, nil for none.
func (e *Engine) condition(r *request) (*condition, *schema.Error) {
	if r.where == "" {
		return nil, nil
	}
	c, fault := e.compiled(r.where)
	if fault == nil {
		fault = c.given(r.params)
	}
	return c, fault
}

// compiled returns a compiled condition. Two queries may compile the same condition at the
// same time; the cache keeps the last one.
func (e *Engine) compiled(where string) (*condition, *schema.Error) {
	if len(where) > e.limits.ExpressionBytes {
		return nil, schema.ErrBadQuery.With("where has %d bytes: at most %d are allowed", len(where), e.limits.ExpressionBytes)
	}
	if c := e.conditions.get(e.limits, where); c != nil {
		return c, nil
	}
	c, err := e.compiler.compile(where)
	if err != nil {
		return nil, schema.ErrBadQuery.With("where: %v", err)
	}
	e.conditions.add(e.limits, where, c)
	return c, nil
}

// Errors of a run that exceeds a limit or has a cursor of another query.
var (
	errScanned = errors.New("too many documents were scanned")
	errSortKey = errors.New("a sort key is too long")
	errCursor  = errors.New("the cursor is not of this query")
)

// explain returns the *schema.Error of an exceeded limit or a wrong cursor, with advice
// for the client, and any other error as it is.
func (l Limits) explain(err error) error {
	switch {
	case errors.Is(err, errCursor):
		return schema.ErrBadQuery.With("the cursor does not belong to this query: send it with the collection, where, params, orderBy, idPrefix, due and held of the page that it came with")
	case errors.Is(err, errScanned):
		return schema.ErrTooLarge.With("the query scanned %d documents, the limit: include a path of its condition in the collection's indexingPolicy, or ask for less", l.Scanned)
	case errors.Is(err, errSortKey):
		return schema.ErrTooLarge.With("a document has more than %d bytes to be ordered by: order by a path with shorter values", maxSortKey)
	case errors.Is(err, errCost):
		return schema.ErrTooLarge.With("the condition costs more than %d on one document: make it simpler, a macro within a macro multiplies, and 10 bytes of text cost 1", l.Cost)
	case errors.Is(err, context.DeadlineExceeded):
		return schema.ErrTimeout.With("the query took longer than %s: include a path of its condition in the collection's indexingPolicy, or ask for less", l.Time)
	case errors.Is(err, context.Canceled):
		return schema.ErrUnavailable.With("lapse is stopping")
	}
	return err
}

// appendPlan appends the plan, for a request with explain. It names the indexes under
// construction, since no plan uses them yet.
func (r *run) appendPlan(dst []byte, returned int) []byte {
	dst = append(dst, `,"plan":{"index":`...)
	switch {
	case r.request.due != nil:
		dst = append(dst, `"expiry"`...)
	case r.access == nil || r.access.scan:
		dst = append(dst, "null"...)
	default:
		dst = schema.AppendString(dst, r.access.index.Path)
	}
	dst = append(dst, `,"scanned":`...)
	dst = strconv.AppendInt(dst, int64(r.scanned), 10)
	dst = append(dst, `,"returned":`...)
	dst = strconv.AppendInt(dst, int64(returned), 10)
	if r.access != nil && r.access.index.Lazy {
		dst = append(dst, `,"behind":`...)
		dst = strconv.AppendUint(dst, r.view.Behind(), 10)
	}
	separator := `,"building":[`
	for _, x := range r.view.Indexes() {
		if !x.Complete {
			dst = schema.AppendString(append(dst, separator...), x.Path)
			separator = ","
		}
	}
	if separator == "," {
		dst = append(dst, ']')
	}
	return append(dst, '}')
}
