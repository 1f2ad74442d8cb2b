package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nuid"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Bounds of one turn of the writer and of what is in flight to the log.
const (
	TurnRequests   = 512      // requests and mutations decided in one turn
	TurnExpiries   = 256      // expiries decided in a turn that had requests, too
	IdleExpiries   = 2048     // expiries decided in a turn that had none
	maxInFlight    = 8192     // events decided and not yet folded; well below what a stream queues
	maxFlightBytes = 16 << 20 // bytes of their bodies; with one batch more below it, too
	maxReplies     = 4 * maxInFlight
	maxReplyBytes  = 64 << 20         // bytes of outcomes that wait for the log; with one batch more
	fewGroups      = 1                // appends in flight from which a small one waits to become larger
	fullGroup      = 128              // events from which it does not
	atomicFrom     = 16               // synced events from which an atomic batch beats single ones
	AckTimeout     = 10 * time.Second // or the lease, if that is shorter
	maxGroupBytes  = 4 << 20          // bytes of bodies, of proposals or of events, decided in one turn
	StopTimeout    = 5 * time.Second
	MaxRecoveries  = 3 // in a row without anything folded before the writer slows down
	MaxPause       = 10 * time.Second
	clockCheck     = time.Second     // timers do not see that the clock was set, or that the machine slept
	abandonAfter   = 2 * time.Second // out of reach, the log keeps no request waiting
)

// Term is one time as the writer: the one goroutine that decides. What it decided
// is in flight to the log while it decides more; when the log has it, it is folded
// and replied to. A term is made anew by begin, and never used again after its end.
type Term struct {
	*Writer
	name    string // in WriterStarted
	Machine *machine.Machine
	phase   phase

	pendingReplies []decided // by outcome.Seq
	ReplyBytes     int       // bytes of the bodies of those outcomes
	Unsent         []segment // decided and not yet appended, in order
	Groups         []group   // appends not acknowledged, oldest first
	acked          uint64    // the last sequence acknowledged
	retry          []*Proposal
	recoveries     int       // since the log took something last
	shorter        time.Time // since when the log is shorter than what was folded of it, zero if it is not
	overdue        bool      // the last turn left something that is due
	batches        bool      // the last turn that decided proposals decided batches
	looked         int64     // log time, ms, up to which what is due was looked for
}

// phase is what a term does. It changes only in this file:
//
//	fencing ──► deciding ◄──► draining
//	               ▲ │
//	               │ ▼
//	              doubting
//
// From every phase the term may end: nothing is done then.
type phase int

const (
	// fencing: the log is read to its end, and a WriterStarted appended there.
	fencing phase = iota
	// deciding: proposals are decided, and what is due expires.
	deciding
	// draining: nothing is decided until all that is in flight is folded. A
	// proposal asks for that which cannot be decided on top of what is in flight,
	// and a change of a collection, so that what it made overdue comes next.
	draining
	// doubting: the clock is not believed, so nothing is decided.
	doubting
)

// decided is a proposal whose outcome waits for the log.
type decided struct {
	*Proposal
	first   uint64 // sequence of the first event it may have made
	outcome machine.Outcome
}

// Begin begins a term: it reads the log to its end and moves the fence. Whoever
// wrote before cannot any more when it returns.
func (w *Writer) Begin(ctx context.Context) (*Term, error) {
	t := &Term{Writer: w, name: nuid.Next()}
	w.refuse(NotWriter) // what came too late for the term before
	w.Term.Store(t)
	if _, err := t.fence(ctx, nil); err != nil {
		t.Leave()
		return nil, err
	}
	var err error
	if t.Machine, err = machine.NewMachine(w.store); err != nil {
		t.Leave()
		return nil, err
	}
	t.Machine.LimitBodies(w.config.Largest)
	t.looked = t.Machine.Time()
	t.phase = deciding
	return t, nil
}

// Run decides until ctx ends, and then until nothing is in flight. It returns
// nil then, or what makes going on impossible.
func (t *Term) Run(ctx context.Context) (err error) {
	defer t.Leave()
	defer func() {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = nil // the end came while the log was out of reach
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t.config.Meter.Beat(t.Machine.Pending())
		if err := t.turn(ctx); err != nil {
			return err
		}
		if err := t.commit(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return t.end()
		}
		proposals, mutations := t.Proposals, t.Mutations
		if t.full() || t.gathering() || len(t.retry) > 0 && t.phase != doubting {
			proposals = nil
		}
		if proposals == nil || t.phase == doubting {
			mutations = nil
		}
		timer.Reset(t.untilNext())
		select {
		case a := <-t.Log.Acks:
			if err := t.acknowledged(ctx, a); err != nil {
				return err
			}
		case <-t.Log.Connected:
			if err := t.lost(ctx, errors.New("the connection was lost")); err != nil {
				return err
			}
		case <-t.Log.Elected:
			if err := t.lost(ctx, errors.New("the stream has a new leader")); err != nil {
				return err
			}
		case p := <-proposals:
			t.retry = append(t.retry, p)
		case m := <-mutations:
			t.retry = append(t.retry, &Proposal{Mutation: m})
		case <-timer.C:
			if err := t.checkTimeout(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
		}
	}
}

// ackTimeout is how long the log may take to acknowledge before the term reads
// what became of the append. With standbys it is no longer than the lease, after
// which they take over.
func (t *Term) ackTimeout() time.Duration {
	if t.config.Lease > 0 {
		return min(AckTimeout, t.config.Lease)
	}
	return AckTimeout
}

// full reports whether the in-flight limits are reached.
func (t *Term) full() bool {
	return t.phase == draining && t.Machine.Pending() > 0 || len(t.Groups) >= eventlog.MaxGroups ||
		t.Machine.Pending() >= maxInFlight || t.Machine.PendingBytes() >= maxFlightBytes ||
		len(t.pendingReplies) >= maxReplies || t.ReplyBytes >= maxReplyBytes
}

// gathering reports whether to hold queued proposals until the append in flight is
// acknowledged, so that they share one append. With synced appends there is time
// to decide meanwhile, and where batches come, few proposals are many events.
func (t *Term) gathering() bool {
	return !t.config.Synced && !t.batches && len(t.Groups) >= fewGroups && len(t.Proposals)+len(t.Mutations) < fullGroup
}

// untilNext is how long nothing but a message can give the writer work.
func (t *Term) untilNext() time.Duration {
	wait := time.Hour
	if len(t.Groups) > 0 {
		wait = time.Until(t.Groups[0].sent.Add(t.ackTimeout()))
	}
	if t.full() {
		return max(wait, 0)
	}
	wait = min(wait, clockCheck)
	if t.phase == doubting {
		return max(wait, 0)
	}
	if t.overdue || len(t.retry) > 0 {
		return 0
	}
	if at, ok := t.Machine.NextDue(); ok {
		if t.Machine.Time() >= at*1000 {
			return 0
		}
		wait = min(wait, t.Clock.Until(at))
	}
	return max(wait, 0)
}

// turn decides what is queued, up to a bound, and what is due, and appends it.
func (t *Term) turn(ctx context.Context) error {
	if t.phase == draining && t.Machine.Pending() == 0 {
		t.phase = deciding
	}
	if t.full() {
		return nil
	}
	now, fault := t.Clock.Check()
	if fault != nil {
		if t.phase == deciding {
			t.phase = doubting
		}
		// Requests are refused, mutations of the stream wait.
		t.Clock.Refused.Add(uint64(t.refuseRetries(fault) + t.refuse(fault)))
		return nil
	}
	if t.phase == doubting {
		t.phase = deciding
	}
	t.resume(now)
	// What is due comes first, so that what a change of policy made overdue
	// expires right after it; but no more of it than requests can wait for.
	share := IdleExpiries
	if len(t.retry) > 0 || len(t.Proposals) > 0 || len(t.Mutations) > 0 {
		share = TurnExpiries
	}
	// Only a proposal that has waited until nothing is in flight comes before it:
	// to expire something then would have it, and all behind it, wait again.
	if len(t.retry) == 0 || !t.retry[0].drained {
		var err error
		if t.overdue, err = t.Machine.Expire(now, share); err != nil {
			return err
		}
	}
	requests, bytes := 0, 0
	for requests < TurnRequests && bytes < maxGroupBytes && !t.full() {
		p := t.next()
		if p == nil {
			break
		}
		t.batches = p.Batch != nil || requests > 0 && t.batches
		requests++
		n, err := t.decide(p)
		if err != nil {
			return err
		}
		bytes += n
	}
	t.present(now, max(t.config.MaxDowntime/4, minPresence))
	t.append()
	t.replyFolded()
	return nil
}

// next returns the next proposal, nil if none is queued. Requests and mutations
// take turns when both are.
func (t *Term) next() *Proposal {
	if len(t.retry) > 0 {
		p := t.retry[0]
		t.retry[0] = nil
		t.retry = t.retry[1:]
		return p
	}
	select {
	case p := <-t.Proposals:
		return p
	case m := <-t.Mutations:
		return &Proposal{Mutation: m}
	default:
		return nil
	}
}

// decide decides one proposal and returns about how many bytes it took.
func (t *Term) decide(p *Proposal) (bytes int, err error) {
	before := t.Machine.PendingBytes()
	atomic := p.Batch != nil && p.Batch.Atomic
	if atomic {
		// What comes before is appended for itself.
		t.append()
	}
	o, first, err := t.judge(p)
	if err != nil {
		return 0, err
	}
	if atomic {
		t.appendAtomic(first)
	}
	switch {
	case p.Mutation != nil:
		bytes = len(p.Mutation.Body)
	case p.Batch != nil:
		bytes = p.Room / 4
	}
	bytes = max(bytes, t.Machine.PendingBytes()-before)
	if p.drained = o.Again; p.drained {
		t.retry = slices.Insert(t.retry, 0, p)
		t.phase = draining
		return bytes, nil
	}
	if p.Mutation != nil && p.Mutation.Op == schema.CollectionReplace {
		t.phase = draining // before anything else, what it made overdue
	}
	t.pendingReplies = append(t.pendingReplies, decided{p, first, o})
	t.ReplyBytes += len(o.Body)
	return bytes, nil
}

// judge decides one proposal by the clock as it is now: a turn takes long enough
// for a deadline to pass in it. first is the sequence of the first event that the
// proposal may have made.
func (t *Term) judge(p *Proposal) (o machine.Outcome, first uint64, err error) {
	t.Renewals.mu.Lock()
	defer t.Renewals.mu.Unlock()
	now, pending := t.Clock.Millis(), t.Machine.Pending()
	first = t.Machine.Seq() + 1
	switch {
	case p.Internal != nil:
		o = t.Machine.Note(now, p.Internal.Type, p.Internal.Body)
	case p.Batch == nil:
		o, err = t.Machine.Decide(now, p.Mutation)
	default:
		o, first, err = t.Machine.DecideBatch(now, p.Batch, p.Room)
	}
	t.Renewals.note(t.Machine, pending)
	return o, first, err
}

// end ends in order: all that is in flight is replied to.
func (t *Term) end() error {
	if err := t.drain(); err != nil || t.phase == doubting {
		return err
	}
	if now, fault := t.Clock.Check(); fault == nil && t.present(now, min(t.config.MaxDowntime/4, stopPresence)) {
		t.append()
		if err := t.drain(); err != nil {
			t.config.Events(observe.StopIncomplete{Err: err})
		}
	}
	return nil
}

// drain waits for what is in flight, so that a clean stop replies to every request.
func (t *Term) drain() error {
	timeout := time.After(StopTimeout)
	for len(t.Groups) > 0 {
		select {
		case a := <-t.Log.Acks:
			if a.Epoch != t.Log.Epoch {
				continue
			}
			if a.Err != nil {
				return fmt.Errorf("stopping: %w", a.Err)
			}
			t.ack(a.Seq)
			if err := t.commit(); err != nil {
				return err
			}
		case <-timeout:
			return fmt.Errorf("stopping: %d events were not acknowledged within %s", t.Machine.Pending(), StopTimeout)
		}
	}
	return nil
}

// Leave ends the term: it replies to what will not be decided any more.
func (t *Term) Leave() {
	t.Term.Store(nil)
	t.abandon(NotWriter)
	t.pendingReplies, t.retry = nil, nil
	t.refuse(NotWriter)
	t.Renewals.clear()
}
