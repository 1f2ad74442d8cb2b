package processor

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Proposal is something for the writer to decide: a mutation, a batch, or an
// internal event, which has nothing to be decided.
type Proposal struct {
	Mutation *schema.Mutation
	Batch    *schema.Batch
	Room     int           // bytes that the reply to a batch may have
	Internal *schema.Event // its type and body

	// Done is called with the outcome, once it is durable and folded, from the
	// writer's goroutine: it must not block. nil if nobody waits.
	Done func(Outcome)

	// drained says that the proposal has waited until nothing is in flight, since
	// what it is about was not folded. It is then decided before anything expires.
	drained bool
}

func (p *Proposal) reply(o Outcome) {
	if p.Done != nil {
		p.Done(o)
	}
}

// writer is what a processor writes with: the queues of what is to be decided,
// and what is known of expiries and renewals. It decides while it has a Term.
type writer struct {
	config writerConfig
	log    *eventLog
	store  *projections.Store
	clock  *timekeeper

	proposals chan *Proposal        // from requests
	mutations chan *schema.Mutation // from the mutations stream
	term      atomic.Pointer[Term]  // nil while nothing is decided

	lateness *lateness
	renewals renewals
}

// writerConfig is what a Writer needs to know.
type writerConfig struct {
	Events *EventListener
	Meter  writerMeter
	// Synced says that the log syncs what it acknowledges. Events are then
	// appended in atomic batches as soon as there are enough to share a sync.
	Synced bool
	// AtomicBatch is the size of the largest atomic batch that the log takes.
	AtomicBatch int
	// Lease is the lease TTL, 0 where no other process can write.
	Lease time.Duration
	// MaxDowntime is how old the end of the log may be at a start.
	MaxDowntime time.Duration
	// QueryTime is the longest that a query runs: for so long renewals matter to
	// it that were folded since it began.
	QueryTime time.Duration
	// Largest is how many bytes the body of an event may have.
	Largest int
	// Queue is how many proposals may wait.
	Queue int
	// Objective is how late 99 of 100 expiries may be.
	Objective time.Duration
}

// writerMeter counts what the writer does. Its methods are called on the writer's
// goroutine: they must not block.
type writerMeter interface {
	// beat is called in each turn, with how many events are in flight.
	beat(pending int)
	// replied is called for each mutation or batch whose outcome is durable; both
	// are nil for an internal event.
	replied(mutation *schema.Mutation, batch *schema.Batch, fault *schema.Error)
	stored(fact *projections.Fact)
	late(ms int64)
	acknowledged(events int, batch, synced bool, took time.Duration)
	folded(took time.Duration)
}

func newWriter(c writerConfig, log *eventLog, store *projections.Store, clock *timekeeper) *writer {
	return &writer{config: c, log: log, store: store, clock: clock,
		proposals: make(chan *Proposal, c.Queue), mutations: make(chan *schema.Mutation, mutationsQueued),
		lateness: newLateness(c.Objective)}
}

// Writing reports whether this writer has a term: others decide nothing then.
func (w *writer) Writing() bool { return w.term.Load() != nil }

// Submit queues a proposal and reports whether there was a place for it. One that
// comes when nothing is decided any more is replied to with notWriter.
func (w *writer) Submit(p *Proposal) bool {
	select {
	case w.proposals <- p:
		if !w.Writing() {
			w.refuse(notWriter)
		}
		return true
	default:
		return false
	}
}

// Note appends an internal event and returns when it is durable, or with ctx's
// error.
func (w *writer) Note(ctx context.Context, t schema.EventType, body []byte) error {
	done := make(chan Outcome, 1)
	select {
	case w.proposals <- &Proposal{Internal: &schema.Event{Type: t, Body: body}, Done: func(o Outcome) { done <- o }}:
		if !w.Writing() {
			w.refuse(notWriter)
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case o := <-done:
		if o.Fault != nil {
			return o.Fault
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refuse replies to every proposal that is queued while nothing can be decided,
// and returns how many there were.
func (w *writer) refuse(fault *schema.Error) (refused int) {
	for {
		select {
		case p := <-w.proposals:
			p.reply(Outcome{Code: fault.Code, Fault: fault})
			refused++
		default:
			return refused
		}
	}
}

// Lateness returns how late expiries were over the last minute, in ms, and how
// well the objective was kept; oldest is the second since which a document is
// overdue, 0 if none is.
func (w *writer) Lateness(now, oldest int64) (schema.Lateness, *schema.LatenessObjective) {
	return w.lateness.at(now), w.lateness.kept(now, oldest)
}

// observe notes how late an expiry was that the log has. own says that this
// process appended it: each process counts its own.
func (w *writer) observe(fact *projections.Fact, own bool) {
	if fact.Type != schema.DocumentExpired {
		return
	}
	due := fact.Deadline.At * 1000
	if c, ok := w.store.Collection(fact.Collection); ok {
		due = max(due, c.Time) // a change of policy made it due
	}
	w.lateness.record(fact.Time, fact.Time-due)
	if own {
		w.config.Meter.late(fact.Time - due)
	}
}

// What those are told that come too late: mutations, and others.
var (
	notWriter = schema.ErrUnavailable.With("this lapse is stopping, or not the writer any more: try again")
	stopping  = schema.ErrUnavailable.With("lapse is stopping: try again")
)

// outOfReach is the reply to mutations that nobody can decide now.
var outOfReach = schema.ErrUnavailable.With("the log is out of reach: try again")
