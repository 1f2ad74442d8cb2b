package writer

import (
	"time"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/schema"
)

// A term decides ahead of the log: while its appends are in flight it judges further
// proposals by the state that follows if all of them succeed (package machine). What a
// proposal goes through:
//
//	queued ─► decided ─► unsent ─► in flight ─► acknowledged ─► folded, replied
//	  ▲                               │
//	  └── recover: the log lacks it ◄─┘
//
// Who may change what: one goroutine, in Term.Run, owns the machine, the queue, the lists and
// the phase. Others only put proposals into the queues, read the log for restores (history.go),
// and read the table of renewals, which has a lock of its own.
//
// What may be in flight: up to maxInFlight events in up to eventlog.MaxGroups appends, each
// fenced by the one before it. So the log has a prefix of what was sent, in this order. An
// atomic batch is fenced by a sequence alone, hence alone in flight (nextGroup).
//
// Why it is safe:
//
//   - Nothing is replied, and no read or consumer sees it, before the log has acknowledged it.
//     A reply about an event waits until that is folded, so that its client reads its write.
//   - A refusal is an answer about state in flight, too: it waits for the events that it was
//     judged by (machine.Outcome.Seq). If those turn out not to be in the log, the proposal is
//     decided again.
//   - When an append fails, or is not acknowledged in time, the term does not guess. It reads
//     the log to its end and moves the fence there, after which nothing that it sent can still
//     arrive (recover.go). What the log has is replied; the rest is decided again, in order.
//   - The sequence of an event is known when it is decided, since nobody else appends: another
//     writer, or a foreign message, breaks the fence, and thereby ends or restarts the term.
//   - The time of an event is that of its decision, so log time never goes back, and a document
//     whose deadline has passed by that time is expired before any later event of it.
//
// A turn is bounded: expiries, then what the queue has and receives (queue.go), each up to a
// limit of number, bytes or work. So neither a storm of expiries nor a large batch keeps the
// others waiting, and the loop beats often enough for the watchdog.

// Limits of one turn and of what is in flight to the log.
const (
	turnRequests   = 512      // proposals decided in one turn
	maxInFlight    = 8192     // events; well below the limit of JetStream's queue
	maxFlightBytes = 16 << 20 // bytes of their bodies; the last batch may exceed it
	maxFlightWork  = 16 << 20 // work of folding them, see machine.Work
	maxReplies     = 4 * maxInFlight
	maxReplyBytes  = 64 << 20         // bytes of pending replies; the last batch may exceed it
	fewGroups      = 1                // appends in flight from which a small group waits for more events
	fullGroup      = 128              // events from which a group does not wait
	groupFrom      = 16               // synced events from which a group is faster than single appends
	stagedFrom     = 3                // as groupFrom, for a log that stages groups in memory
	ackTimeout     = 10 * time.Second // at most the lease TTL
	maxGroupBytes  = 4 << 20          // bytes of proposals or work done in one turn
	StopTimeout    = 5 * time.Second
	maxRecoveries  = 3 // in a row without an acknowledgement, before the writer slows down
	maxPause       = 10 * time.Second
	clockCheck     = time.Second     // timers do not notice a clock step or the machine's sleep
	abandonAfter   = 2 * time.Second // of an unreachable log, before waiting requests are answered
)

// phase is the state of a term. Only turn and decide, in this file, change it:
//
//	fencing ───► deciding ───► draining, deferring
//	                 ▲               │
//	                 ├───────────────┘ nothing in flight
//	                 ▼
//	              doubting
//
// A term may end in any phase. Recovery from a failed append is one call
// (recover.go), after which nothing is in flight: the phase stays as it is.
type phase int

const (
	// fencing: Begin reads the log to its end and appends a WriterStarted.
	fencing phase = iota
	// deciding: the term decides proposals and expires what is due.
	deciding
	// draining: a collection changed. Nothing is decided until nothing is in
	// flight; then whatever the new policy made overdue expires first.
	draining
	// deferring: an atomic batch cannot be decided on top of events in flight. Nothing
	// is decided until there are none; then that batch comes first: an expiry before it
	// would be in flight again.
	deferring
	// doubting: the clock is not trusted. Nothing is decided.
	doubting
)

// full reports whether the in-flight limits are reached, or the phase waits until
// nothing is in flight.
func (t *Term) full() bool {
	waits := t.phase == draining || t.phase == deferring
	return waits && t.machine.Pending() > 0 || len(t.groups) >= eventlog.MaxGroups ||
		t.machine.Pending() >= maxInFlight || t.machine.PendingBytes() >= maxFlightBytes || t.machine.PendingWork() >= maxFlightWork ||
		len(t.pendingReplies) >= maxReplies || t.replyBytes >= maxReplyBytes
}

// gathering reports whether to hold queued proposals until the append in flight is
// acknowledged, so that they share one append. It is false for synced appends, which take
// long enough to decide meanwhile, and for batches: a few have events enough.
func (t *Term) gathering() bool {
	return !t.config.Synced && !t.batches && len(t.groups) >= fewGroups && len(t.Proposals)+len(t.Mutations) < fullGroup
}

// untilNext returns how long the term may wait for a message before it has to act
// by itself: on what is ready in the queue, a deadline, a missing acknowledgement, or the clock.
func (t *Term) untilNext(ready bool) time.Duration {
	wait := time.Hour
	if len(t.groups) > 0 {
		wait = time.Until(t.groups[0].sent.Add(t.ackTimeout()))
	}
	if t.full() {
		return max(wait, 0)
	}
	if !t.Clock.Stands() {
		wait = min(wait, clockCheck)
	}
	if t.phase == doubting || t.move != nil && !t.move.Move.begins(t) {
		return max(wait, 0)
	}
	if ready || t.phase == draining || t.move != nil {
		return 0
	}
	if at, ok := t.machine.NextDue(); ok && !t.Clock.Stands() {
		if t.machine.Time() >= at*1000 {
			return max(min(wait, t.expiriesWait(time.Now())), 0)
		}
		wait = min(wait, t.Clock.Until(at))
	}
	return max(wait, 0)
}

// turn expires due documents, decides queued proposals, both up to a limit, and appends
// the events.
func (t *Term) turn() error {
	if t.full() {
		return nil
	}
	now, fault := t.Clock.Check()
	if fault != nil {
		t.phase = doubting
		// Requests are refused; mutations of the stream wait.
		t.Clock.Refused.Add(uint64(t.refuseQueued(fault) + t.refuse(fault)))
		return nil
	}
	if t.move != nil {
		return t.carry()
	}
	deferred, drained := t.phase == deferring, t.phase == draining
	t.phase = deciding
	t.resume(now)
	// Expiries come first, so that whatever a new policy made overdue expires right
	// after it, but no more of them than requests can wait for.
	if at := time.Now(); !deferred && t.due(now) && (drained || t.expiriesWait(at) == 0 && t.sweeps()) {
		more, err := t.machine.Expire(now, t.share.steer(at, t.received()))
		if err != nil {
			return err
		}
		if t.Clock.Manual() && t.holdBack(more) {
			return nil
		}
	}
	most := mostSlice
	if deferred {
		most = -1 // the atomic batch is next
	}
	if err := t.decideQueue(most); err != nil {
		return err
	}
	t.present(now, max(t.config.MaxDowntime/4, minPresence))
	t.append()
	t.replyFolded()
	return nil
}

// expiriesWait returns how long expiries wait to leave time for requests.
func (t *Term) expiriesWait(now time.Time) time.Duration {
	if t.Clock.Manual() {
		return 0
	}
	return t.share.wait(now, t.machine.Sweeping())
}

// received returns the number of requests and stream mutations.
func (t *Term) received() uint64 { return t.Requests.Load() + t.published }

// due reports whether a document may be due at now, in ms.
func (t *Term) due(now int64) bool {
	at, ok := t.machine.NextDue()
	return ok && at*1000 <= max(now, t.machine.Time())
}

// decide decides one proposal, or a piece of it, or begins what it needs first. It returns the
// approximate size in bytes of the proposal or of the work for it.
func (t *Term) decide(p *Proposal) (bytes int, err error) {
	switch {
	case p.Move != nil:
		t.move, p.over = p, true
		return 0, nil
	case p.Term != nil && p.Term != t:
		p.refuse(notWriter)
		return 0, nil
	}
	before := t.machine.Work()
	atomic := p.Batch != nil && p.Batch.Atomic
	if atomic {
		t.append() // earlier events, apart from the batch
	}
	pending := t.machine.Pending()
	o, first, err := t.judge(p)
	if err != nil {
		return 0, err
	}
	// Without an event no fence tells that another process may have decided meanwhile, as
	// after a freeze for longer than the lease. A lease that is still held does.
	if p.Done != nil && o.Need == machine.NoNeed && t.machine.Pending() == pending && !t.held() {
		fault := p.undecided(notWriter)
		o = machine.Outcome{Seq: o.Seq, Code: fault.Code, Fault: fault}
	}
	if atomic {
		t.appendAtomic(first)
	}
	bytes = t.machine.Work() - before
	switch p.need = o.Need; {
	case o.Need == machine.NeedLog:
		t.recall(p)
	case o.Need == machine.NeedCommit && atomic:
		t.phase = deferring
	case o.Need == machine.NoNeed:
		t.decided(p, first, o, pending)
		bytes = max(bytes, p.size())
	}
	return bytes, nil
}

// decided lets the reply wait for what the outcome depends on; pending is the number of events
// before the decision.
func (t *Term) decided(p *Proposal, first uint64, o machine.Outcome, pending int) {
	p.over = true
	if p.Mutation != nil && p.Mutation.Op == schema.CollectionReplace || t.makesDue(pending) {
		t.phase = draining
	}
	t.pendingReplies = append(t.pendingReplies, decided{p, first, o, o.Seq})
	t.replyBytes += len(o.Body)
}

// size returns the approximate size of a proposal in bytes.
func (p *Proposal) size() int {
	switch {
	case p.Mutation != nil:
		return len(p.Mutation.Body)
	case p.Batch != nil:
		return p.MaxReply / 4
	}
	return 0
}

// held reports whether no other process can have the lease.
func (t *Term) held() bool { return t.config.Held == nil || t.config.Held() }

// judge decides one proposal by the current time, since a deadline may pass within
// a turn. first is the sequence of the first event that the proposal may have made.
// It holds the lock of Renewals from before it reads the clock until each renewal
// is noted: see peers.Liveness.
func (t *Term) judge(p *Proposal) (o machine.Outcome, first uint64, err error) {
	t.Renewals.mu.Lock()
	defer t.Renewals.mu.Unlock()
	now, pending := t.Clock.Millis(), t.machine.Pending()
	first = t.machine.Seq() + 1
	t.history.read = p.read
	switch {
	case p.Internal != nil:
		o = t.machine.Note(now, p.Internal.Type, p.Internal.Body)
	case p.Batch == nil:
		o, err = t.machine.Decide(now, p.Mutation)
	default:
		if p.run == nil {
			p.run = machine.NewBatchRun(p.Batch, p.MaxReply)
		}
		o, err = t.machine.DecideBatch(now, p.run, t.pieceWork())
		p.judged = t.machine.Seq()
		switch {
		case p.Batch.Atomic:
			first = p.run.First
		case p.first == 0 && p.judged >= first:
			p.first = first
		default:
			first = p.first
		}
	}
	t.Renewals.note(t.machine, pending)
	return o, first, err
}
