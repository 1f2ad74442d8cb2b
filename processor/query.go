package processor

import (
	"context"
	"errors"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// query has a worker for queries answer the request. Waiting for one counts
// into the time that a query may take.
func (r *request) query() {
	name, err := schema.ParseCollectionName(r.tail)
	if err != nil {
		r.refuse(schema.AsError(err))
		return
	}
	deadline := time.Now().Add(r.options.Query.Time)
	select {
	case r.queries <- func() {
		defer r.recover()
		r.answerQuery(name, deadline)
	}:
	default:
		r.refuse(schema.ErrOverloaded.With("too many queries are waiting: try again later"))
	}
}

func (r *request) answerQuery(name schema.CollectionName, deadline time.Time) {
	ctx, cancel := context.WithDeadline(r.ctx, deadline)
	defer cancel()
	// What the log says is past is past, whatever the clock says.
	now := func(logTime int64) int64 { return max(nowMillis(), logTime) / 1000 }
	reply, err := r.engine.Answer(ctx, r.store, name, r.data, now, r.room)
	r.seq = reply.Seq
	var fault *schema.Error
	switch {
	case errors.As(err, &fault):
		r.refuse(fault)
	case err != nil:
		r.fail(err)
	default:
		r.reply(200, nil, reply.Body)
	}
}
