package service

import (
	"context"
	"errors"
	"time"

	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// query has a worker for queries answer the request. Waiting for one counts
// into the time that a query may take.
func (r *Request) query() {
	name, err := schema.ParseCollectionName(r.Tail)
	if err != nil {
		r.refuse(schema.AsError(err))
		return
	}
	if fault := answer.CheckQuery(r.data); fault != nil {
		r.refuse(fault)
		return
	}
	r.queueQuery(name, func(ctx context.Context, w *waitingQuery, second answer.SecondFunc) (query.Reply, error) {
		return w.Engine.Answer(ctx, w.Store, query.Ask{
			Collection: name,
			Body:       w.data,
			Now:        second,
			Room:       w.Room,
			MinSeq:     w.minSeq,
		})
	})
}

// queueQuery has a worker for queries ask, which is about the named collection.
func (r *Request) queueQuery(name schema.CollectionName, ask askFunc) {
	w := &waitingQuery{Request: r, name: name, ask: ask}
	r.Queries.Put(r, w.answer)
}

// waitingQuery is a query that waits for a worker.
type waitingQuery struct {
	*Request
	name schema.CollectionName
	ask  askFunc
}

// askFunc answers a query; its error is a *schema.Error where that is to blame.
type askFunc func(ctx context.Context, w *waitingQuery, second answer.SecondFunc) (query.Reply, error)

func (w *waitingQuery) answer() {
	second, confirm, err := w.Live.Begin(w.name, &w.Attempt)
	if err != nil {
		w.failRead(err)
		return
	}
	ctx, cancel := context.WithDeadline(w.ctx, w.until)
	defer cancel()
	reply, err := w.ask(ctx, w, second)
	w.claim(reply.Seq)
	var fault *schema.Error
	switch {
	case errors.As(err, &fault):
		w.refuse(fault)
	case err != nil:
		w.fail(err)
	default:
		if err := confirm(reply.Seq); err != nil {
			w.failRead(err)
			return
		}
		w.reply(200, nil, reply.Body)
	}
}

// forecast has a worker for queries answer the request.
func (r *Request) forecast() {
	name, err := schema.ParseCollectionName(r.Tail)
	if err != nil {
		r.refuse(schema.AsError(err))
		return
	}
	r.queueQuery(name, func(ctx context.Context, w *waitingQuery, second answer.SecondFunc) (query.Reply, error) {
		ask, fault := schema.ParseForecast(w.data)
		if fault != nil {
			return query.Reply{}, fault
		}
		f := answer.Forecaster{Limits: w.Config.Query, Pace: w.Pacer(QueryPause * time.Duration(w.Config.QueryWorkers))}
		return f.Answer(ctx, w.Store, name, ask, second)
	})
}
