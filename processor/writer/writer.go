// Package writer is the one loop that writes: it takes proposals from a queue, lets the
// machine decide them, appends the events to the log, and after the acknowledgement folds
// them and replies. It also expires due documents.
//
// It imports machine, eventlog, clock and observe. Start reading at Writer (the queues)
// and Term (term.go); then turn.go (a turn, and the phases of a term), pipeline.go (from
// decided to folded) and recover.go (a failed append). renewals.go is the table of
// renewals in flight that peers.Liveness reads.
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

// Proposal is a mutation, a batch, an internal event or a move of the clock for the writer to
// decide; the last two are always accepted.
type Proposal struct {
	Mutation *schema.Mutation
	Batch    *schema.Batch
	MaxReply int           // maximum reply size of a batch in bytes
	Internal *schema.Event // its type and body
	Move     *Move         // of a manual clock
	Term     *Term         // the only term that may decide it; nil for any

	// Done receives the outcome once it is durable and folded. It runs on the writer's
	// goroutine and must not block. nil for a mutation of the stream.
	Done func(machine.Outcome)

	read map[*schema.Mutation]recalled // for restores, see history.go

	need machine.Need // why it is still in the queue, see queue.go
	over bool         // it was decided or refused

	// Of a batch:
	run    *machine.BatchRun // nil until the first piece
	first  uint64            // of one that is not atomic: sequence of its first event, 0 for none
	judged uint64            // sequence of the state of the last piece
}

func (p *Proposal) reply(o machine.Outcome) {
	if p.Done != nil {
		p.Done(o)
	}
}

// Writer holds the queues of proposals, the table of renewals and the statistics of
// lateness. It outlives its terms; it decides while it has one.
type Writer struct {
	config Config
	log    *eventlog.Log
	store  *projections.Store
	Clock  *clock.Timekeeper

	Proposals chan *Proposal        // from requests
	Mutations chan *schema.Mutation // from the mutations stream
	Term      atomic.Pointer[Term]  // nil while another process writes
	Requests  atomic.Uint64         // received, except queries and forecasts; expiries leave time for them

	lateness *lateness
	Renewals Renewals
}

// Config of a Writer.
type Config struct {
	Events observe.EventListener
	Meter  Meter
	// Synced: the log syncs before it acknowledges. Events are then appended in atomic
	// batches once there are enough to share a sync.
	Synced bool
	// AtomicBatch is the most events of an atomic batch.
	AtomicBatch int
	// Lease is the lease TTL, 0 without standbys.
	Lease time.Duration
	// Held reports whether the lease cannot have expired; nil without standbys.
	Held func() bool
	// MaxDowntime is the age of the log's end from which a start doubts the clock.
	MaxDowntime time.Duration
	// QueryTime is the time limit of queries. Folded renewals are remembered for as
	// long: a query that began before may have missed them.
	QueryTime time.Duration
	// Largest is the maximum size of an event body in bytes.
	Largest int
	// Queue is the capacity of the queue of proposals.
	Queue int
	// Objective is the lateness that 99 of 100 expiries should not exceed.
	Objective time.Duration
}

// Meter counts the work of the writer. Its methods run on the writer's goroutine and
// must not block.
type Meter interface {
	// Beat is called in each turn, with the number of events in flight.
	Beat(pending int)
	// Replied is called for each mutation or batch whose outcome is durable; both
	// are nil for an internal event.
	Replied(mutation *schema.Mutation, batch *schema.Batch, fault *schema.Error)
	Stored(fact *projections.Fact)
	Late(ms int64)
	Acknowledged(events int, batch, synced bool, took time.Duration)
	Folded(took time.Duration)
}

// New returns a Writer without a term.
func New(c Config, log *eventlog.Log, store *projections.Store, clock *clock.Timekeeper) *Writer {
	return &Writer{config: c, log: log, store: store, Clock: clock,
		Proposals: make(chan *Proposal, c.Queue), Mutations: make(chan *schema.Mutation, eventlog.MutationsQueued),
		lateness: newLateness(c.Objective)}
}

// Writing reports whether the writer has a term, so that no other process decides.
func (w *Writer) Writing() bool { return w.Term.Load() != nil }

// Submit queues a proposal and reports whether the queue had a free place. Without a
// term it refuses the proposal with NotWriter.
func (w *Writer) Submit(p *Proposal) bool {
	select {
	case w.Proposals <- p:
		if !w.Writing() {
			w.refuse(notWriter)
		}
		return true
	default:
		return false
	}
}

// Note appends an internal event and returns when it is durable and folded, or with
// the error of ctx.
func (w *Writer) Note(ctx context.Context, t schema.EventType, body []byte) error {
	_, err := w.Await(ctx, &Proposal{Internal: &schema.Event{Type: t, Body: body}})
	return err
}

// Await queues a proposal, waiting for a free place, and returns its outcome once it is durable
// and folded, or its refusal, or the error of ctx.
func (w *Writer) Await(ctx context.Context, p *Proposal) (machine.Outcome, error) {
	done := make(chan machine.Outcome, 1)
	p.Done = func(o machine.Outcome) { done <- o }
	select {
	case w.Proposals <- p:
		if !w.Writing() {
			w.refuse(notWriter)
		}
	case <-ctx.Done():
		return machine.Outcome{}, ctx.Err()
	}
	select {
	case o := <-done:
		if o.Fault != nil {
			return o, o.Fault
		}
		return o, nil
	case <-ctx.Done():
		return machine.Outcome{}, ctx.Err()
	}
}

// refuse replies fault to every queued proposal, and returns their number.
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

// Lateness returns the lateness of expiries over the last minute, in ms, and how it
// compares with the objective; oldest is the deadline of the most overdue document in
// unix seconds, 0 if none is overdue.
func (w *Writer) Lateness(now, oldest int64) (schema.Lateness, *schema.LatenessObjective) {
	return w.lateness.at(now), w.lateness.kept(now, oldest)
}

// Observe records the lateness of an expiry in the log. If own, this process appended
// it and counts it in its metrics.
func (w *Writer) Observe(fact *projections.Fact, own bool) {
	switch fact.Type {
	case schema.DocumentReleased:
		w.lateness.release(fact)
		return
	case schema.DocumentExpired:
	default:
		return
	}
	due := max(fact.Deadline.At*1000, w.lateness.released(fact)) // a release made it due
	if c, ok := w.store.Collection(fact.Collection); ok {
		due = max(due, c.Time) // a new policy made it due
	}
	w.lateness.record(fact.Time, fact.Time-due)
	if own {
		w.config.Meter.Late(fact.Time - due)
	}
}

// Replies to proposals submitted after the end of a term, and to other requests when
// the process stops.
var (
	notWriter = schema.ErrUnavailable.With("this process is stopping, or no longer the writer: try again")
	Stopping  = schema.ErrUnavailable.With("lapse is stopping: try again")
)

// unreachable refuses mutations while the log is unreachable.
var unreachable = schema.ErrUnavailable.With("the log is unreachable: try again")
