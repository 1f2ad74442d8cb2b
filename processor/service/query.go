package service

import (
	"context"
	"errors"
	"time"

	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// query queues a query for a worker. Its time limit includes the wait.
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
			Room:       w.MaxReply,
			MinSeq:     w.minSeq,
		})
	})
}

// queueQuery queues ask, about a collection, for a worker of queries.
func (r *Request) queueQuery(name schema.CollectionName, ask askFunc) {
	w := &waitingQuery{Request: r, name: name, ask: ask}
	r.Queries.Put(r, w.answer)
}

// waitingQuery is a query in its queue.
type waitingQuery struct {
	*Request
	name schema.CollectionName
	ask  askFunc
}

// askFunc answers a query; its error is a *schema.Error if the request is invalid.
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

// forecast queues a forecast for a worker of queries.
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
