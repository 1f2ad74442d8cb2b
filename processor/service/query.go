package service

import (
	"context"
	"errors"
	"time"

	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// askFunc answers a query about a collection; its error is a *schema.Error if the request is
// invalid.
type askFunc func(ctx context.Context, name schema.CollectionName, second answer.SecondFunc) (query.Reply, error)

// queueQuery queues ask for a worker of queries. The time limit of the request includes the
// wait.
func (r *Request) queueQuery(ask askFunc) {
	name, err := schema.ParseCollectionName(r.Tail)
	if err != nil {
		r.refuse(schema.AsError(err))
		return
	}
	r.queries.put(r, func() { r.answerQuery(name, ask) })
}

// answerQuery runs a query on a worker. A document that looks expired may have been renewed
// by a write that is not folded: confirm finds that out for the state that was read, and
// the query runs again if so.
func (r *Request) answerQuery(name schema.CollectionName, ask askFunc) {
	second, confirm, err := r.Liveness.Begin(name, &r.Attempt)
	if err != nil {
		r.failRead(err)
		return
	}
	ctx, cancel := context.WithDeadline(r.ctx, r.until)
	defer cancel()
	reply, err := ask(ctx, name, second)
	r.claim(reply.Seq)
	var fault *schema.Error
	switch {
	case errors.As(err, &fault):
		r.refuse(fault)
	case err != nil:
		r.fail(err)
	default:
		if err := confirm(reply.Seq); err != nil {
			r.failRead(err)
			return
		}
		r.reply(200, nil, reply.Body)
	}
}

// query asks the engine of queries, which returns a page.
func (r *Request) query(ctx context.Context, name schema.CollectionName, second answer.SecondFunc) (query.Reply, error) {
	return r.Engine.Answer(ctx, r.Store, query.Ask{
		Collection: name,
		Body:       r.data,
		Now:        second,
		Room:       r.MaxReply,
		MinSeq:     r.minSeq,
	})
}

func (r *Request) forecast(ctx context.Context, name schema.CollectionName, second answer.SecondFunc) (query.Reply, error) {
	ask, fault := schema.ParseForecast(r.data)
	if fault != nil {
		return query.Reply{}, fault
	}
	f := answer.Forecaster{Limits: r.Config.Query, Pace: r.Pacer(QueryPause * time.Duration(r.Config.QueryWorkers))}
	return f.Answer(ctx, r.Store, name, ask, second)
}
