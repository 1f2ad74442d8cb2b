package writer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/observe"
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
	Done func(machine.Outcome)

	// drained says that the proposal has waited until nothing is in flight, since
	// what it is about was not folded. It is then decided before anything expires.
	drained bool
}

func (p *Proposal) reply(o machine.Outcome) {
	if p.Done != nil {
		p.Done(o)
	}
}

// Writer is what a processor writes with: the queues of what is to be decided,
// and what is known of expiries and renewals. It decides while it has a Term.
type Writer struct {
	config Config
	Log    *eventlog.Log
	store  *projections.Store
	Clock  *clock.Timekeeper

	Proposals chan *Proposal        // from requests
	Mutations chan *schema.Mutation // from the mutations stream
	Term      atomic.Pointer[Term]  // nil while nothing is decided

	lateness *lateness
	Renewals Renewals
}

// Config is what a Writer needs to know.
type Config struct {
	Events observe.EventListener
	Meter  Meter
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

// Meter counts what the writer does. Its methods are called on the writer's
// goroutine: they must not block.
type Meter interface {
	// Beat is called in each turn, with how many events are in flight.
	Beat(pending int)
	// Replied is called for each mutation or batch whose outcome is durable; both
	// are nil for an internal event.
	Replied(mutation *schema.Mutation, batch *schema.Batch, fault *schema.Error)
	Stored(fact *projections.Fact)
	Late(ms int64)
	Acknowledged(events int, batch, synced bool, took time.Duration)
	Folded(took time.Duration)
}

func New(c Config, log *eventlog.Log, store *projections.Store, clock *clock.Timekeeper) *Writer {
	return &Writer{config: c, Log: log, store: store, Clock: clock,
		Proposals: make(chan *Proposal, c.Queue), Mutations: make(chan *schema.Mutation, eventlog.MutationsQueued),
		lateness: newLateness(c.Objective)}
}

// Writing reports whether this writer has a term: others decide nothing then.
func (w *Writer) Writing() bool { return w.Term.Load() != nil }

// Submit queues a proposal and reports whether there was a place for it. One that
// comes when nothing is decided any more is replied to with notWriter.
func (w *Writer) Submit(p *Proposal) bool {
	select {
	case w.Proposals <- p:
		if !w.Writing() {
			w.refuse(NotWriter)
		}
		return true
	default:
		return false
	}
}

// Note appends an internal event and returns when it is durable, or with ctx's
// error.
func (w *Writer) Note(ctx context.Context, t schema.EventType, body []byte) error {
	done := make(chan machine.Outcome, 1)
	select {
	case w.Proposals <- &Proposal{Internal: &schema.Event{Type: t, Body: body}, Done: func(o machine.Outcome) { done <- o }}:
		if !w.Writing() {
			w.refuse(NotWriter)
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
func (w *Writer) refuse(fault *schema.Error) (refused int) {
	for {
		select {
		case p := <-w.Proposals:
			p.reply(machine.Outcome{Code: fault.Code, Fault: fault})
			refused++
		default:
			return refused
		}
	}
}

// Lateness returns how late expiries were over the last minute, in ms, and how
// well the objective was kept; oldest is the second since which a document is
// overdue, 0 if none is.
func (w *Writer) Lateness(now, oldest int64) (schema.Lateness, *schema.LatenessObjective) {
	return w.lateness.at(now), w.lateness.kept(now, oldest)
}

// Observe notes how late an expiry was that the log has. own says that this
// process appended it: each process counts its own.
func (w *Writer) Observe(fact *projections.Fact, own bool) {
	if fact.Type != schema.DocumentExpired {
		return
	}
	due := fact.Deadline.At * 1000
	if c, ok := w.store.Collection(fact.Collection); ok {
		due = max(due, c.Time) // a change of policy made it due
	}
	w.lateness.record(fact.Time, fact.Time-due)
	if own {
		w.config.Meter.Late(fact.Time - due)
	}
}

// What those are told that come too late: mutations, and others.
var (
	NotWriter = schema.ErrUnavailable.With("this lapse is stopping, or not the writer any more: try again")
	Stopping  = schema.ErrUnavailable.With("lapse is stopping: try again")
)

// outOfReach is the reply to mutations that nobody can decide now.
var outOfReach = schema.ErrUnavailable.With("the log is out of reach: try again")
