package processor

import (
	"context"
	"errors"

	"github.com/lapsedb/lapse/query"
	"github.com/lapsedb/lapse/schema"
)

// maxQueryBytes is the size of the largest query: many may wait.
const maxQueryBytes = 1 << 20

// query has a worker for queries answer the request. Waiting for one counts
// into the time that a query may take.
func (r *request) query() {
	name, err := schema.ParseCollectionName(r.tail)
	if err != nil {
		r.refuse(schema.AsError(err))
		return
	}
	if fault := checkQuery(r.data); fault != nil {
		r.refuse(fault)
		return
	}
	r.queueQuery(name, func(ctx context.Context, w *waitingQuery, second secondFunc) (query.Reply, error) {
		return w.engine.Answer(ctx, w.store, query.Ask{
			Collection: name,
			Body:       w.data,
			Now:        second,
			Room:       w.room,
			MinSeq:     w.minSeq,
		})
	})
}

// queueQuery has a worker for queries ask, which is about the named collection.
func (r *request) queueQuery(name schema.CollectionName, ask askFunc) {
	w := &waitingQuery{request: r, name: name, ask: ask}
	r.queries.put(r, w.answer)
}

func checkQuery(body []byte) *schema.Error {
	if len(body) > maxQueryBytes {
		return schema.ErrTooLarge.With("the query has %d bytes: at most %d are allowed", len(body), maxQueryBytes)
	}
	return nil
}

// waitingQuery is a query that waits for a worker.
type waitingQuery struct {
	*request
	name schema.CollectionName
	ask  askFunc
}

// askFunc answers a query; its error is a *schema.Error where that is to blame.
type askFunc func(ctx context.Context, w *waitingQuery, second secondFunc) (query.Reply, error)

// secondFunc gives the second by which deadlines are judged for a state at a log
// time, in ms.
type secondFunc = func(logTime int64) int64

func (w *waitingQuery) answer() {
	second, sole, before := w.clock.second, w.sole(), w.known()
	var now int64
	if !sole {
		// As of now, for which it is known who has gone, or as of the state's own
		// time, for which it always is.
		var err error
		if now, err = w.knownNow(); err != nil {
			w.failRead(err)
			return
		}
		second = func(logTime int64) int64 { return max(now, logTime/1000) }
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
		missed := w.missedBy(reply.Seq, sole)
		if !sole && w.sure == 0 && before.overlooked(reply.Seq, now) {
			missed = w.unsure(now)
		}
		if missed != nil {
			w.failRead(missed)
			return
		}
		w.reply(200, nil, reply.Body)
	}
}

// missedBy returns an error for failRead if the answer, of the state at sequence
// seq, may lack a document that was renewed before its deadline. That it was
// folded while the query ran makes it run again once, no more: it might for ever.
// So does that nobody else could write when it began, and now somebody can.
func (w *waitingQuery) missedBy(seq uint64, sole bool) error {
	c, ok := w.store.Collection(w.name)
	switch {
	case !ok || !sole:
		return nil
	case !w.sole() && w.sure == 0:
		return w.unsure(w.now())
	case !w.sole():
		return nil
	}
	before := seq
	if w.again {
		seq = max(seq, w.store.Cursor().Seq)
	}
	missed := w.missed(c, seq, w.now())
	if missed == nil && uint64(c.Version) > before && !w.again {
		missed = &renewalUnderWay{c.Name, ofCollection(c.Incarnation), 0} // it may have been of the policy
	}
	w.again = w.again || missed != nil
	return missed
}

// knownNow returns the second by which a standby judges who has gone: now, or an
// error for failRead if that is not known. It waits for that once, no more: the
// second time it is the one for which it did.
func (w *waitingQuery) knownNow() (now int64, err error) {
	now = w.now()
	if w.sure != 0 {
		return min(now, max(w.sure, w.certainUpTo())), nil
	}
	c, ok := w.store.Collection(w.name)
	if !ok {
		return now, nil
	}
	if err = w.missed(c, 0, now); err != nil {
		w.sure = now
	}
	return now, err
}

// unsure returns an error for failRead, after which the query runs once more, by
// a second for which it is known who has gone.
func (w *waitingQuery) unsure(now int64) error {
	w.sure = now
	return &renewalUnderWay{w.name, documentKey{}, now}
}
