// Package query answers questions about the documents of a collection: a
// condition in CEL, an order, a page of results or a count.
//
// A query sees the projection at one position of the log, and of it the
// documents that live: it judges deadlines itself, again at the very end, and
// never waits for a sweep. Where the collection has an index on a path that the
// condition or the order asks for, it goes by that; otherwise it looks at every
// document.
package query

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/hashicorp/golang-lru/v2"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// conditionsKept is how many compiled conditions are remembered.
const conditionsKept = 256

// Engine answers queries. Several goroutines may use it at a time; each query
// takes one.
type Engine struct {
	limits     Limits
	pacer      func() func(context.Context, time.Duration)
	compiler   *compiler
	conditions *lru.Cache[string, *condition]
	sealer     sealer
}

// Options of an Engine.
type Options struct {
	Limits
	// Secret makes cursors: those made with another one are refused.
	Secret []byte
	// Pacer makes for each query what it calls about every sliceTime of work, with
	// how long it worked since the last call. That may keep the query waiting, so
	// that others are not, until ctx is done. None if nil.
	Pacer func() (pace func(ctx context.Context, worked time.Duration))
}

// New returns an Engine.
func New(o Options) (*Engine, error) {
	l := o.Limits.EnsureDefaults()
	c, err := newCompiler(l)
	if err != nil {
		return nil, err
	}
	conditions, err := lru.New[string, *condition](conditionsKept)
	if err != nil {
		return nil, err
	}
	return &Engine{limits: l, pacer: o.Pacer, compiler: c, conditions: conditions, sealer: sealer{o.Secret}}, nil
}

// Reply is the answer to a query.
type Reply struct {
	Body []byte // JSON
	Seq  uint64 // of the state that it is about
}

// Ask is what an Engine is asked.
type Ask struct {
	Collection schema.CollectionName
	Body       []byte // the request, JSON
	// Now gives the second by which deadlines are judged for a state at a log
	// time, in ms. It is called again when the reply is made.
	Now func(logTime int64) int64
	// Room is how many bytes a reply may have.
	Room int
	// MinSeq is the sequence that the answer has to be whole up to, also where
	// lazy indexes are not. The store has to be there already.
	MinSeq uint64
}

// Answer answers a query. An error is a *schema.Error where the query is to
// blame: it is wrong, or goes over the limits.
func (e *Engine) Answer(ctx context.Context, store *projections.Store, ask Ask) (reply Reply, err error) {
	q, fault := parseRequest(ask.Body)
	if fault != nil {
		return reply, fault
	}
	condition, fault := e.condition(q.where)
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
		r.where = condition.evaluate(ctx, q.params, r.worked)
	}
	if reply.Body, err = r.answer(); err != nil {
		return reply, e.limits.explain(err)
	}
	return reply, nil
}

// condition returns a compiled condition, nil for none.
func (e *Engine) condition(where string) (*condition, *schema.Error) {
	if where == "" {
		return nil, nil
	}
	if len(where) > e.limits.ExpressionBytes {
		return nil, schema.ErrBadQuery.With("where has %d bytes: at most %d are allowed", len(where), e.limits.ExpressionBytes)
	}
	if c, ok := e.conditions.Get(where); ok {
		return c, nil
	}
	c, err := e.compiler.compile(where)
	if err != nil {
		return nil, schema.ErrBadQuery.With("where: %v", err)
	}
	e.conditions.Add(where, c)
	return c, nil
}

// Faults of a run that goes over a limit.
var (
	errScanned   = errors.New("too much was looked at")
	errSortBytes = errors.New("sorting takes too much memory")
	errSortKey   = errors.New("a sort key is too long")
	errBytes     = errors.New("the page is too large")
	errCursor    = errors.New("the cursor is not of this query")
)

// explain turns them into what a client can do about it.
func (l Limits) explain(err error) error {
	switch {
	case errors.Is(err, errCursor):
		return schema.ErrBadQuery.With("the cursor does not belong to this query: send it with the collection, where, params and orderBy of the page that it came with")
	case errors.Is(err, errScanned):
		return schema.ErrTooLarge.With("the query looked at %d documents without coming to an end: include a path of its condition in the collection's indexingPolicy, or ask for less", l.Scanned)
	case errors.Is(err, errSortBytes):
		return schema.ErrTooLarge.With("sorting takes more than %d bytes: ask for fewer documents with limit, or order by shorter values", l.SortBytes)
	case errors.Is(err, errSortKey):
		return schema.ErrTooLarge.With("a document has more than %d bytes to be ordered by: order by a path with shorter values", maxSortKey)
	case errors.Is(err, errBytes):
		return schema.ErrTooLarge.With("the page is larger than a reply may be: ask for fewer documents with limit, or for less of them with select")
	case errors.Is(err, errCost):
		return schema.ErrTooLarge.With("the condition costs more than %d on one document: make it simpler, a macro within a macro multiplies", l.Cost)
	case errors.Is(err, context.DeadlineExceeded):
		return schema.ErrTimeout.With("the query took longer than %s: include a path of its condition in the collection's indexingPolicy, or ask for less", l.Time)
	case errors.Is(err, context.Canceled):
		return schema.ErrUnavailable.With("lapse is stopping")
	}
	return err
}

// appendPlan appends what explain asks for.
func (r *run) appendPlan(dst []byte, returned int) []byte {
	dst = append(dst, `,"plan":{"index":`...)
	if r.access == nil || r.access.scan {
		dst = append(dst, "null"...)
	} else {
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
