package service

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// Lane is the queue of one class of requests with its workers. Each client has its share of
// both; see fairQueue. There are four, by how long their requests take: gets, other reads,
// large bodies, queries. What is slow in one delays nothing in another.
type Lane struct {
	jobs    *fairQueue[job]
	clients *clients
	full    *schema.Error // the refusal when the queue is full
	armed   atomic.Bool   // a timer is set for expire
}

// job is a request and the function with which a worker answers it.
type job struct {
	*Request
	do func()
}

// lane starts a lane with workers, and one more that serves only a client without one.
func (s *Service) lane(places, workers int, full *schema.Error) *Lane {
	l := &Lane{jobs: newFairQueue[job](places), clients: s.clients, full: full}
	context.AfterFunc(s.ctx, l.jobs.close)
	for range workers + 1 {
		s.workers.Go(func() { l.jobs.serve(job.answer) })
	}
	return l
}

// put queues a request, for a worker to call do. If the queue is full, it refuses this
// request or one of a client that has more waiting.
func (l *Lane) put(r *Request, do func()) {
	refused, ok := l.jobs.put(l.clients.of(r.from), job{r, do})
	if !ok {
		refused.refuse(l.full)
	}
	if !r.until.IsZero() {
		l.arm(r.until)
	}
}

// answer answers the request, or refuses it if its deadline has passed.
func (j job) answer() {
	defer j.recover()
	if j.late(time.Now()) {
		j.refuse(j.tooLate())
		return
	}
	j.do()
}

// len returns the number of waiting requests.
func (l *Lane) len() int { return l.jobs.len() }

// lateEvery is the minimum interval between searches for requests past their deadline.
const lateEvery = 10 * time.Millisecond

// arm sets the timer for a deadline, unless it is set. The requests of a lane have the
// same time limit, so later ones have later deadlines.
func (l *Lane) arm(at time.Time) {
	if l.armed.CompareAndSwap(false, true) {
		time.AfterFunc(max(time.Until(at), lateEvery), l.expire)
	}
}

// expire refuses waiting requests at their deadline, rather than when a worker is free.
func (l *Lane) expire() {
	l.armed.Store(false)
	now := time.Now()
	var next time.Time
	for _, j := range l.jobs.drop(func(j job) bool {
		late := j.late(now)
		if !late && !j.until.IsZero() && (next.IsZero() || j.until.Before(next)) {
			next = j.until
		}
		return late
	}) {
		j.refuse(j.tooLate())
	}
	if !next.IsZero() {
		l.arm(next)
	}
}

// late reports whether the deadline of the request has passed.
func (r *Request) late(now time.Time) bool { return !r.until.IsZero() && !now.Before(r.until) }

// context ends after timeout, at the deadline of the request, or with the service.
func (r *Request) context(timeout time.Duration) (context.Context, context.CancelFunc) {
	until := time.Now().Add(timeout)
	if !r.until.IsZero() && r.until.Before(until) {
		until = r.until
	}
	return context.WithDeadline(r.ctx, until)
}

// tooLate returns the refusal of a request past its deadline.
func (r *Request) tooLate() *schema.Error {
	return schema.ErrTimeout.With("%s passed before there was time for the %s: try again later, or ask for less", r.until.Sub(r.came), r.op)
}

// requestTimeout is the time limit of a read other than a query, from its arrival.
const requestTimeout = 5 * time.Second

// timeLimit returns the time limit of a request from its arrival; 0 for none.
func (s *Service) timeLimit(o schema.OperationInfo) time.Duration {
	return [...]time.Duration{schema.NoLimit: 0, schema.ReadLimit: requestTimeout, schema.QueryLimit: s.Config.Query.Time}[o.Limit]
}
