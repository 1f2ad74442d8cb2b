package writer

import (
	"slices"
	"time"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/schema"
)

// Limits of one turn and of what is in flight to the log.
const (
	TurnRequests   = 512      // proposals decided in one turn
	maxInFlight    = 8192     // events; well below the limit of JetStream's queue
	maxFlightBytes = 16 << 20 // bytes of their bodies; the last batch may exceed it
	maxReplies     = 4 * maxInFlight
	maxReplyBytes  = 64 << 20         // bytes of pending replies; the last batch may exceed it
	fewGroups      = 1                // appends in flight from which a small group waits for more events
	fullGroup      = 128              // events from which a group does not wait
	groupFrom      = 16               // synced events from which a group is faster than single appends
	stagedFrom     = 3                // as groupFrom, for a log that stages groups in memory
	AckTimeout     = 10 * time.Second // at most the lease TTL
	maxGroupBytes  = 4 << 20          // bytes of proposals or events decided in one turn
	StopTimeout    = 5 * time.Second
	MaxRecoveries  = 3 // in a row without an acknowledgement, before the writer slows down
	MaxPause       = 10 * time.Second
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
	// deferring: a proposal cannot be decided on top of events in flight. Nothing
	// is decided until there are none; then that proposal comes first: an expiry
	// before it would be in flight again.
	deferring
	// doubting: the clock is not trusted. Nothing is decided.
	doubting
)

// full reports whether the in-flight limits are reached, or the phase waits until
// nothing is in flight.
func (t *Term) full() bool {
	waits := t.phase == draining || t.phase == deferring
	return waits && t.Machine.Pending() > 0 || len(t.groups) >= eventlog.MaxGroups ||
		t.Machine.Pending() >= maxInFlight || t.Machine.PendingBytes() >= maxFlightBytes ||
		len(t.pendingReplies) >= maxReplies || t.replyBytes >= maxReplyBytes
}

// gathering reports whether to hold queued proposals until the append in flight is
// acknowledged, so that they share one append. It is false for synced appends, which take
// long enough to decide meanwhile, and for batches: a few have events enough.
func (t *Term) gathering() bool {
	return !t.config.Synced && !t.batches && len(t.groups) >= fewGroups && len(t.Proposals)+len(t.Mutations) < fullGroup
}

// untilNext returns how long the term may wait for a message before it has to act
// by itself: on a deadline, a missing acknowledgement, or the clock.
func (t *Term) untilNext() time.Duration {
	wait := time.Hour
	if len(t.groups) > 0 {
		wait = time.Until(t.groups[0].sent.Add(t.ackTimeout()))
	}
	if t.full() {
		return max(wait, 0)
	}
	wait = min(wait, clockCheck)
	if t.phase == doubting {
		return max(wait, 0)
	}
	if len(t.retry) > 0 {
		return 0
	}
	if at, ok := t.Machine.NextDue(); ok {
		if t.Machine.Time() >= at*1000 {
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
		t.Clock.Refused.Add(uint64(t.refuseRetries(fault) + t.refuse(fault)))
		return nil
	}
	deferred, drained := t.phase == deferring, t.phase == draining
	t.phase = deciding
	t.resume(now)
	// Expiries come first, so that whatever a new policy made overdue expires right
	// after it, but no more of them than requests can wait for.
	if at := time.Now(); !deferred && (drained || t.expiriesWait(at) == 0) {
		before := t.Machine.Seq()
		more, err := t.Machine.Expire(now, t.share.limit(at))
		if err != nil {
			return err
		}
		t.share.decided(at, before, t.Machine.Seq(), more)
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

// expiriesWait returns how long expiries wait to leave time for requests.
func (t *Term) expiriesWait(now time.Time) time.Duration {
	return t.share.wait(now, t.Requests.Load()+t.proposals, t.Machine.Folded())
}

// next returns the next proposal, nil if none is queued: first one to retry, then
// at random one of a request or of the mutations stream.
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

// decide decides one proposal and returns its approximate size in bytes.
func (t *Term) decide(p *Proposal) (bytes int, err error) {
	if p.Term != nil && p.Term != t {
		p.reply(machine.Outcome{Code: NotWriter.Code, Fault: NotWriter})
		return 0, nil
	}
	t.proposals++
	before := t.Machine.PendingBytes()
	atomic := p.Batch != nil && p.Batch.Atomic
	if atomic {
		t.append() // earlier events, apart from the batch
	}
	pending := t.Machine.Pending()
	o, first, err := t.judge(p)
	if err != nil {
		return 0, err
	}
	// Without an event no fence tells that another process may have decided meanwhile, as
	// after a freeze for longer than the lease. A lease that is still held does.
	if p.Done != nil && !o.Again && t.Machine.Pending() == pending && !t.held() {
		o = machine.Outcome{Seq: o.Seq, Code: NotWriter.Code, Fault: NotWriter}
	}
	if atomic {
		t.appendAtomic(first)
	}
	switch {
	case p.Mutation != nil:
		bytes = len(p.Mutation.Body)
	case p.Batch != nil:
		bytes = p.MaxReply / 4
	}
	bytes = max(bytes, t.Machine.PendingBytes()-before)
	if o.Again {
		t.retry = slices.Insert(t.retry, 0, p)
		t.phase = deferring
		return bytes, nil
	}
	if p.Mutation != nil && p.Mutation.Op == schema.CollectionReplace {
		t.phase = draining
	}
	t.pendingReplies = append(t.pendingReplies, decided{p, first, o})
	t.replyBytes += len(o.Body)
	return bytes, nil
}

// held reports whether no other process can have the lease.
func (t *Term) held() bool { return t.config.Held == nil || t.config.Held() }

// judge decides one proposal by the current time, since a deadline may pass within
// a turn. first is the sequence of the first event that the proposal may have made.
// It holds the lock of Renewals from before it reads the clock until each renewal
// is noted: see service.Liveness.
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
		o, first, err = t.Machine.DecideBatch(now, p.Batch, p.MaxReply)
	}
	t.Renewals.note(t.Machine, pending)
	return o, first, err
}
