package writer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
)

// Events move from unsent, through groups in flight to the log, into the projection;
// only then are their proposals replied to.

// segment is a run of consecutive events to append.
type segment struct {
	facts  []projections.Fact
	atomic bool // all or none
}

// group is one append in flight.
type group struct {
	last   uint64 // sequence
	sent   time.Time
	as     eventlog.As
	events int
}

// appendAtomic appends the events from sequence first on as one atomic batch, and
// earlier ones separately.
func (t *Term) appendAtomic(first uint64) {
	facts := t.machine.Take()
	n := 0
	for n < len(facts) && facts[n].Seq < first {
		n++
	}
	t.addUnsent(facts[:n], false)
	t.addUnsent(facts[n:], true)
	t.send()
}

// append queues the decided events and sends as the limits allow.
func (t *Term) append() {
	t.addUnsent(t.machine.Take(), false)
	t.send()
}

// addUnsent adds events to unsent.
func (t *Term) addUnsent(facts []projections.Fact, atomic bool) {
	if len(facts) == 0 {
		return
	}
	if n := len(t.unsent); n > 0 && !atomic && !t.unsent[n-1].atomic {
		last := &t.unsent[n-1]
		last.facts = append(last.facts, facts...)
		return
	}
	// Clipped: the machine owns the rest of the array.
	t.unsent = append(t.unsent, segment{slices.Clip(facts), atomic})
}

// send appends unsent events as far as the in-flight limits allow.
func (t *Term) send() {
	for {
		facts, as := t.nextGroup()
		if len(facts) == 0 {
			return
		}
		last := facts[len(facts)-1].Seq
		t.groups = append(t.groups, group{last: last, sent: time.Now(), as: as, events: len(facts)})
		// A failed append gets no acknowledgement, which triggers recovery.
		if err := t.log.Append(facts, as); err != nil {
			t.config.Events(observe.AppendFailed{Seq: last, Err: err})
		}
	}
}

// nextGroup takes the events of the next append out of unsent; none if it has to
// wait. An atomic batch is fenced by its sequence alone, so it waits until nothing
// is in flight. A small group of single events waits for more events while another
// is in flight: each costs an acknowledgement and a fold, and a sync where appends
// are synced. A log that accepts one append at a time (Alone) gets one.
func (t *Term) nextGroup() (facts []projections.Fact, as eventlog.As) {
	if len(t.unsent) == 0 {
		return nil, eventlog.Single
	}
	next := &t.unsent[0]
	n, under := len(next.facts), len(t.groups)
	sync, from := t.config.Synced, groupFrom
	if t.log.Staged() {
		from = stagedFrom
	}
	switch {
	case n == 1:
	case next.atomic:
		as = eventlog.Atomic
	case t.log.Alone || sync && n >= from:
		as = eventlog.Group
	}
	batch := as != eventlog.Single
	switch {
	case (batch || t.log.Alone) && under > 0,
		sync && under > 0 && (under >= fewGroups || t.groups[under-1].as != eventlog.Single),
		!sync && under >= fewGroups && n < fullGroup:
		return nil, eventlog.Single
	case batch:
		n = min(n, t.config.AtomicBatch)
	}
	facts = next.facts[:n]
	if next.facts = next.facts[n:]; len(next.facts) == 0 {
		*next = segment{}
		t.unsent = t.unsent[1:]
	}
	return facts, as
}

// acknowledged handles an acknowledgement, and all others that have arrived. It sends
// more before commit folds, so that the log need not wait for the fold.
func (t *Term) acknowledged(ctx context.Context, a eventlog.Ack) error {
	if a.Epoch != t.log.Epoch {
		return nil
	}
	for more := true; more && a.Err == nil; {
		select {
		case next := <-t.log.Acks: // of the same epoch, and later
			a = next
		default:
			more = false
		}
	}
	if a.Err != nil {
		return t.recover(ctx, a.Err)
	}
	t.ack(a.Seq)
	return nil
}

func (t *Term) ack(seq uint64) {
	for len(t.groups) > 0 && t.groups[0].last <= seq {
		done := &t.groups[0]
		t.config.Meter.Acknowledged(done.events, done.as != eventlog.Single, t.config.Synced, time.Since(done.sent))
		t.groups = t.groups[1:]
	}
	t.acked, t.recoveries = seq, 0
	t.send()
}

// commit folds the acknowledged events and sends the replies that waited for them.
func (t *Term) commit() error {
	seq := t.acked
	if seq <= t.machine.Folded() {
		return nil
	}
	for _, fact := range t.machine.PendingFacts() {
		if fact.Seq > seq {
			break
		}
		t.config.Meter.Stored(&fact)
		t.Observe(&fact, true)
	}
	began, sweeping := time.Now(), t.machine.Sweeping() > 0
	if err := t.machine.Commit(seq); err != nil {
		return fmt.Errorf("fold: %w", err)
	}
	ended := time.Now()
	t.config.Meter.Folded(ended.Sub(began))
	if sweeping && t.machine.Sweeping() == 0 {
		t.share.folded(ended)
	}
	t.log.Note(t.store.Cursor())
	t.Renewals.folded(seq, t.Clock.Second(0), int64(t.config.QueryTime/time.Second)+1)
	t.replyFolded()
	return nil
}

// replyFolded sends the replies whose outcomes are folded.
func (t *Term) replyFolded() {
	if t.phase == draining && t.Clock.Manual() {
		return // what a decided proposal makes due comes first
	}
	folded := t.machine.Folded()
	n := 0
	for n < len(t.pendingReplies) && t.pendingReplies[n].after <= folded {
		t.replyDurable(&t.pendingReplies[n])
		t.replyBytes -= len(t.pendingReplies[n].outcome.Body)
		n++
	}
	clear(t.pendingReplies[:n])
	if n == len(t.pendingReplies) {
		t.pendingReplies = t.pendingReplies[:0]
	} else {
		t.pendingReplies = t.pendingReplies[n:]
	}
}

// replyDurable sends and counts the reply of an outcome that is in the log.
func (t *Term) replyDurable(d *decided) {
	t.config.Meter.Replied(d.Mutation, d.Batch, d.outcome.Fault)
	d.reply(d.outcome)
}

// lost recovers at once if anything is in flight: its acknowledgement may be lost.
func (t *Term) lost(ctx context.Context, why error) error {
	if len(t.groups) == 0 {
		return nil
	}
	return t.recover(ctx, why)
}

// checkTimeout recovers if the oldest append in flight was not acknowledged in time.
func (t *Term) checkTimeout(ctx context.Context) error {
	if len(t.groups) > 0 && time.Since(t.groups[0].sent) >= t.ackTimeout() {
		return t.recover(ctx, fmt.Errorf("append %d: no acknowledgement within %s", t.groups[0].last, t.ackTimeout()))
	}
	return nil
}
