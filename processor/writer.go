package processor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Bounds of one turn of the writer and of what is under way to the log.
const (
	turnRequests   = 512      // requests and mutations decided in one turn
	turnExpiries   = 256      // expiries decided in a turn that had requests, too
	idleExpiries   = 2048     // expiries decided in a turn that had none
	maxInFlight    = 8192     // events decided and not yet folded; well below what a stream queues
	maxFlightBytes = 16 << 20 // bytes of their bodies; with one batch more below it, too
	maxGroups      = 64       // appends not yet acknowledged
	maxUntold      = 4 * maxInFlight
	maxUntoldBytes = 64 << 20         // bytes of outcomes that wait for the log; with one batch more
	fewGroups      = 1                // appends on their way from which a small one waits to become larger
	fullGroup      = 128              // events from which it does not
	atomicFrom     = 16               // synced events from which an atomic batch beats single ones
	ackTimeout     = 10 * time.Second // or the lease, if that is shorter
	maxGroupBytes  = 4 << 20          // bytes of bodies, of wishes or of events, decided in one turn
	stopTimeout    = 5 * time.Second
	maxRecoveries  = 3 // in a row without anything folded before the writer slows down
	maxPause       = 10 * time.Second
	resumeInterval = 100 * time.Millisecond
	clockCheck     = time.Second     // timers do not see that the clock was set, or that the machine slept
	abandonAfter   = 2 * time.Second // out of reach, the log keeps no request waiting
)

// wish is something for the writer to decide: a mutation, a batch, or an
// internal event, which has nothing to be decided.
type wish struct {
	mutation *schema.Mutation
	batch    *schema.Batch
	room     int           // bytes that a batch's reply may have
	internal *schema.Event // its type and body

	// done is told the outcome, once it is durable and folded, from the
	// writer's goroutine: it must not block. nil if nobody waits.
	done func(Outcome)
}

func (w *wish) answer(o Outcome) {
	if w.done != nil {
		w.done(o)
	}
}

// decided is a wish whose outcome waits for the log.
type decided struct {
	*wish
	first   uint64 // sequence of the first event it may have made
	outcome Outcome
}

// writer is the one goroutine that decides. What it decided is on its way to
// the log while it decides more; when the log has it, it is folded and told.
type writer struct {
	options Options
	log     *eventLog
	machine *Machine
	store   *projections.Store

	wishes    chan *wish            // from requests
	mutations chan *schema.Mutation // from the mutations stream
	name      string                // of this writer, in WriterStarted

	waiting    []decided // by outcome.Seq
	untold     int       // bytes of the bodies of those outcomes
	unsent     []stretch // decided and not yet appended, in order
	groups     []group   // appends not acknowledged, oldest first
	inLog      uint64    // the last sequence acknowledged
	retry      []*wish   // to be decided before anything new, in order
	recoveries int       // since the log took something last
	started    bool      // the fence was moved for this writer
	shorter    time.Time // since when the log is shorter than what was folded of it, zero if it is not
	draining   bool      // nothing is decided until everything pending is folded
	again      bool      // the first of retry waits for that, so nothing else comes before it
	more       bool      // something is due that the last turn left
	batches    bool      // the last turn that decided wishes decided some
	clock      *timekeeper
	held       bool  // the clock is not believed: nothing is decided
	looked     int64 // log time, ms, up to which what is due was looked for
	lateness   *lateness
	renewals   renewals
	largest    int         // see Machine
	gone       atomic.Bool // nothing is decided now
}

// begin readies the writer for another term.
func (w *writer) begin() {
	w.name = nuid.Next()
	w.waiting, w.untold, w.unsent, w.groups, w.inLog, w.retry = nil, 0, nil, nil, 0, nil
	w.shorter = time.Time{}
	w.recoveries, w.started, w.draining, w.again, w.more, w.batches, w.held, w.looked = 0, false, false, false, false, false, false, 0
	w.refuse(notWriter) // what came too late for the term before
	w.gone.Store(false)
}

// errSuperseded means that another process writes this log now.
var errSuperseded = errors.New("another lapse has taken over this database: stop one of the two, a database has one writer")

// run decides until ctx ends, and then until nothing is under way. It returns
// nil then, or what makes going on impossible.
func (w *writer) run(ctx context.Context) (err error) {
	defer w.leave()
	defer func() {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = nil // the end came while the log was out of reach
		}
	}()
	w.looked = w.machine.Time()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		w.options.Monitor.beat(w.machine.Pending())
		if err := w.turn(ctx); err != nil {
			return err
		}
		if err := w.commit(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return w.end()
		}
		wishes, mutations := w.wishes, w.mutations
		if w.full() || w.gathering() || len(w.retry) > 0 && !w.held {
			wishes = nil
		}
		if wishes == nil || w.held {
			mutations = nil
		}
		timer.Reset(w.untilNext())
		select {
		case a := <-w.log.acks:
			if err := w.acknowledged(ctx, a); err != nil {
				return err
			}
		case <-w.log.connected:
			if err := w.lost(ctx, errors.New("the connection was lost")); err != nil {
				return err
			}
		case <-w.log.elected:
			if err := w.lost(ctx, errors.New("the stream has a new leader")); err != nil {
				return err
			}
		case one := <-wishes:
			w.retry = append(w.retry, one)
		case one := <-mutations:
			w.retry = append(w.retry, &wish{mutation: one})
		case <-timer.C:
			if err := w.checkTimeout(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
		}
	}
}

// ackTimeout is how long the log may take to acknowledge before it is looked what
// became of what was appended. Where there are standbys, writes are away for no
// longer than it takes those to take over.
func (w *writer) ackTimeout() time.Duration {
	if w.options.Lease > 0 {
		return min(ackTimeout, w.options.Lease)
	}
	return ackTimeout
}

// full tells whether as much is on its way to the log as may be.
func (w *writer) full() bool {
	return w.draining && w.machine.Pending() > 0 || len(w.groups) >= maxGroups ||
		w.machine.Pending() >= maxInFlight || w.machine.PendingBytes() >= maxFlightBytes ||
		len(w.waiting) >= maxUntold || w.untold >= maxUntoldBytes
}

// gathering tells whether what is queued waits for the log's next word: a few
// wishes are then decided together, and not each for itself. Where the log takes
// long, for each append is synced, there is time to decide meanwhile, and where
// batches come, a few are many.
func (w *writer) gathering() bool {
	return w.options.Durability == OS && !w.batches && len(w.groups) >= fewGroups && len(w.wishes)+len(w.mutations) < fullGroup
}

// untilNext is how long nothing but a message can give the writer work.
func (w *writer) untilNext() time.Duration {
	wait := time.Hour
	if len(w.groups) > 0 {
		wait = time.Until(w.groups[0].sent.Add(w.ackTimeout()))
	}
	if w.full() {
		return max(wait, 0)
	}
	wait = min(wait, clockCheck)
	if w.held {
		return max(wait, 0)
	}
	if w.more || len(w.retry) > 0 {
		return 0
	}
	if at, ok := w.machine.NextDue(); ok {
		if w.machine.Time() >= at*1000 {
			return 0
		}
		wait = min(wait, w.clock.until(at))
	}
	return max(wait, 0)
}

// turn decides what is queued, up to a bound, and what is due, and appends it.
func (w *writer) turn(ctx context.Context) error {
	if w.draining && w.machine.Pending() == 0 {
		w.draining = false
	}
	if w.full() {
		return nil
	}
	now, fault := w.clock.check()
	if w.held = fault != nil; w.held {
		w.hold(fault)
		return nil
	}
	w.resume(now)
	// What is due comes first, so that what a change of policy made overdue
	// expires right after it; but no more of it than requests can wait for.
	share := idleExpiries
	if len(w.retry) > 0 || len(w.wishes) > 0 || len(w.mutations) > 0 {
		share = turnExpiries
	}
	// Only a wish that has waited until nothing is pending comes before it: to
	// expire something then would have it, and all behind it, wait again.
	if !w.again {
		var err error
		if w.more, err = w.machine.Expire(now, share); err != nil {
			return err
		}
	}
	w.again = false
	requests, bytes := 0, 0
	for requests < turnRequests && bytes < maxGroupBytes && !w.full() {
		one := w.next()
		if one == nil {
			break
		}
		w.batches = one.batch != nil || requests > 0 && w.batches
		requests++
		n, err := w.decide(one)
		if err != nil {
			return err
		}
		bytes += n
	}
	w.present(now, max(w.options.MaxDowntime/4, minPresence))
	w.append()
	w.tell()
	return nil
}

// hold refuses requests. Mutations of the stream wait.
func (w *writer) hold(fault *schema.Error) {
	refused := w.refuseRetries(fault) + w.refuse(fault)
	w.clock.refused.Add(uint64(refused))
	w.again = w.again && refused == 0
}

// next returns the next wish, nil if none is queued. Requests and mutations
// take turns when both are.
func (w *writer) next() *wish {
	if len(w.retry) > 0 {
		one := w.retry[0]
		w.retry[0] = nil
		w.retry = w.retry[1:]
		return one
	}
	select {
	case one := <-w.wishes:
		return one
	case one := <-w.mutations:
		return &wish{mutation: one}
	default:
		return nil
	}
}

// decide decides one wish and returns about how many bytes it took.
func (w *writer) decide(one *wish) (bytes int, err error) {
	before := w.machine.PendingBytes()
	atomic := one.batch != nil && one.batch.Atomic
	if atomic {
		// What comes before is appended for itself.
		w.append()
	}
	o, first, err := w.judge(one)
	if err != nil {
		return 0, err
	}
	if atomic {
		w.appendAtomic(first)
	}
	switch {
	case one.mutation != nil:
		bytes = len(one.mutation.Body)
	case one.batch != nil:
		bytes = one.room / 4
	}
	bytes = max(bytes, w.machine.PendingBytes()-before)
	if o.Again {
		w.retry = append([]*wish{one}, w.retry...)
		w.draining, w.again = true, true
		return bytes, nil
	}
	if one.mutation != nil && one.mutation.Op == schema.CollectionReplace {
		w.draining = true // before anything else, what it made overdue
	}
	w.waiting = append(w.waiting, decided{one, first, o})
	w.untold += len(o.Body)
	return bytes, nil
}

// judge decides one wish by the clock as it is now: a turn takes long enough for
// a deadline to pass in it. first is the sequence of the first event that the
// wish may have made.
func (w *writer) judge(one *wish) (o Outcome, first uint64, err error) {
	w.renewals.mu.Lock()
	defer w.renewals.mu.Unlock()
	now, pending := w.clock.millis(), len(w.machine.pending)
	first = w.machine.Seq() + 1
	switch {
	case one.internal != nil:
		o = w.machine.Note(now, one.internal.Type, one.internal.Body)
	case one.batch == nil:
		o, err = w.machine.Decide(now, one.mutation)
	default:
		o, first, err = w.machine.DecideBatch(now, one.batch, one.room)
	}
	w.renewals.note(w.machine, pending)
	return o, first, err
}

// end ends in order: all that is under way is told.
func (w *writer) end() error {
	if err := w.drain(); err != nil || w.held {
		return err
	}
	if now, fault := w.clock.check(); fault == nil && w.present(now, min(w.options.MaxDowntime/4, stopPresence)) {
		w.append()
		if err := w.drain(); err != nil {
			w.options.Events.StopIncomplete(err)
		}
	}
	return nil
}

// drain waits for what is under way, so that a clean stop tells every outcome.
func (w *writer) drain() error {
	timeout := time.After(stopTimeout)
	for len(w.groups) > 0 {
		select {
		case a := <-w.log.acks:
			if a.epoch != w.log.epoch {
				continue
			}
			if a.err != nil {
				return fmt.Errorf("stopping: %w", a.err)
			}
			w.landed(a.seq)
			if err := w.commit(); err != nil {
				return err
			}
		case <-timeout:
			return fmt.Errorf("stopping: %d events were not acknowledged within %s", w.machine.Pending(), stopTimeout)
		}
	}
	return nil
}

// leave answers what will not be decided any more.
func (w *writer) leave() {
	w.gone.Store(true)
	w.abandon(notWriter)
	w.waiting, w.retry = nil, nil
	w.refuse(notWriter)
	w.renewals.clear()
}

// What those are told that come too late: mutations, and others.
var (
	notWriter = schema.ErrUnavailable.With("this lapse is stopping, or not the writer any more: try again")
	stopping  = schema.ErrUnavailable.With("lapse is stopping: try again")
)
