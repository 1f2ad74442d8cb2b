package service

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/lapsedb/lapse/schema"
)

// Lane is the queue of one class of requests, and the workers that answer them.
// Each client gets its share of them; see fair.
type Lane struct {
	Jobs    *fair[Job]
	clients *clients
	full    *schema.Error // for whom there is no place
	armed   atomic.Bool   // a timer is set for those that wait
}

// Job is what a worker does for a request.
type Job struct {
	*Request
	Do func()
}

// lane starts workers, and one more that only a client without one may occupy.
func (s *Service) lane(places, workers int, full *schema.Error) *Lane {
	l := &Lane{Jobs: newFair[Job](places), clients: s.clients, full: full}
	context.AfterFunc(s.ctx, l.Jobs.close)
	for range workers + 1 {
		s.workers.Go(func() { l.Jobs.serve(Job.answer) })
	}
	return l
}

// Put has a worker do something for a request, or refuses it; or a request of a
// client that has more waiting.
func (l *Lane) Put(r *Request, do func()) {
	refused, ok := l.Jobs.Put(l.clients.of(r.To), Job{r, do})
	if !ok {
		refused.refuse(l.full)
	}
	if !r.until.IsZero() {
		l.arm(r.until)
	}
}

// answer answers the request, unless its time has passed.
func (j Job) answer() {
	defer j.recover()
	if j.late(time.Now()) {
		j.refuse(j.tooLate())
		return
	}
	j.Do()
}

// Len returns how many requests wait.
func (l *Lane) Len() int { return l.Jobs.len() }

// lateEvery is the least time between two searches for those that waited too
// long.
const lateEvery = 10 * time.Millisecond

// arm sets a timer for the first of those that wait, unless there is one. All
// requests of a lane may wait equally long, so what comes later is due later.
func (l *Lane) arm(at time.Time) {
	if l.armed.CompareAndSwap(false, true) {
		time.AfterFunc(max(time.Until(at), lateEvery), l.expire)
	}
}

// expire refuses those that waited too long: they are told so at their time, not
// when their turn comes.
func (l *Lane) expire() {
	l.armed.Store(false)
	now := time.Now()
	var next time.Time
	for _, j := range l.Jobs.drop(func(j Job) bool {
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

// late reports whether the time for a request has passed.
func (r *Request) late(now time.Time) bool { return !r.until.IsZero() && !now.Before(r.until) }

// context ends after a while, when the time for the request has passed, or with
// the service.
func (r *Request) context(timeout time.Duration) (context.Context, context.CancelFunc) {
	until := time.Now().Add(timeout)
	if !r.until.IsZero() && r.until.Before(until) {
		until = r.until
	}
	return context.WithDeadline(r.ctx, until)
}

func (r *Request) tooLate() *schema.Error {
	return schema.ErrTimeout.With("%s passed before there was time for the %s: try again later, or ask for less", r.until.Sub(r.came), r.Op)
}

// RequestTimeout is how long a read may take, waiting included.
const RequestTimeout = 5 * time.Second

// timeLimit returns how long a request may take until its reply, waiting
// included; 0 for those that change something or make a snapshot.
func (s *Service) timeLimit(op string) time.Duration {
	switch op {
	case "query", "forecast":
		return s.Config.Query.Time
	case "document.get", "collection.get", "collection.list", "batch", "history", "status", "snapshot.list":
		return RequestTimeout
	}
	return 0
}

// clients tells clients apart. NATS gives a service no identity of who asks, but
// client libraries subscribe to one inbox for each connection, and end the
// subjects of their replies with a token for each request. Who makes up an inbox
// for each request gets nothing by it: all inboxes that were not used lately are
// one client together.
type clients struct {
	known *lru.TwoQueueCache[string, struct{}]
}

// knownClients is how many inboxes are remembered: as many as connections that
// the embedded server takes.
const knownClients = 4096

// newcomers is the client of all inboxes that were not used lately.
const newcomers = ""

func newClients() *clients {
	known, err := lru.New2Q[string, struct{}](knownClients)
	if err != nil {
		panic(err) // only for a size of 0
	}
	return &clients{known}
}

// of returns the client that gets replies on a subject.
func (c *clients) of(reply string) string {
	client := clientOf(reply)
	if _, ok := c.known.Get(client); ok {
		return client
	}
	c.known.Add(client, struct{}{})
	return newcomers
}

// nuidPrefix is how much of a NUID is the same for all that a process makes.
const nuidPrefix = 12

// clientOf returns what the reply subjects of one client have in common: all but
// the last token of an inbox, or where it has only one, a NUID for each request,
// the part that names the process.
func clientOf(reply string) string {
	inbox := strings.TrimPrefix(reply, replyPrefix)
	if end := strings.LastIndexByte(inbox, '.'); end >= 0 {
		return inbox[:end]
	}
	return inbox[:min(len(inbox), nuidPrefix)]
}
