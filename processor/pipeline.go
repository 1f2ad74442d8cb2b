package processor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lapsedb/lapse/projections"
)

// What the writer decided goes from unsent, by way of groups in flight to the
// log, into the projection; replies wait until then.

// segment is a part of the log to be.
type segment struct {
	facts  []projections.Fact
	atomic bool // all of it or none
}

type group struct {
	last   uint64
	sent   time.Time
	batch  bool
	events int
}

// appendAtomic appends the events from sequence first on as one, those before
// it for themselves.
func (t *Term) appendAtomic(first uint64) {
	facts := t.machine.Take()
	n := 0
	for n < len(facts) && facts[n].Seq < first {
		n++
	}
	t.queue(facts[:n], false)
	t.queue(facts[n:], true)
	t.send()
}

// append sends what was decided to the log.
func (t *Term) append() {
	t.queue(t.machine.Take(), false)
	t.send()
}

func (t *Term) queue(facts []projections.Fact, atomic bool) {
	if len(facts) == 0 {
		return
	}
	if n := len(t.unsent); n > 0 && !atomic && !t.unsent[n-1].atomic {
		last := &t.unsent[n-1]
		last.facts = append(last.facts, facts...)
		return
	}
	// Clipped, since what is behind it is the machine's.
	t.unsent = append(t.unsent, segment{slices.Clip(facts), atomic})
}

// send appends what is queued, as far as that may be on its way at a time: an
// atomic batch, which knows its place only by its number, starts when all
// before it is known to be in the log. Single events follow each other closer,
// but a few do not follow until there are more of them or nothing is on its way:
// each group costs an acknowledgement and a fold, and where it is synced, a sync.
// Where the log is alone, nothing follows until all before it is there.
func (t *Term) send() {
	for len(t.unsent) > 0 {
		next := &t.unsent[0]
		n, under := len(next.facts), len(t.groups)
		sync := t.config.Synced
		batch := n > 1 && (next.atomic || t.log.alone || sync && n >= atomicFrom)
		switch {
		case (batch || t.log.alone) && under > 0,
			sync && under > 0 && (under >= fewGroups || t.groups[under-1].batch),
			!sync && under >= fewGroups && n < fullGroup:
			return
		case batch:
			n = min(n, t.config.AtomicBatch)
		}
		last := next.facts[n-1].Seq
		t.groups = append(t.groups, group{last: last, sent: time.Now(), batch: batch, events: n})
		// A failure shows as a missing acknowledgement, too, and is mended there.
		if err := t.log.Append(next.facts[:n], batch); err != nil {
			t.config.Events.AppendFailed(AppendFailure{Seq: last, Err: err})
		}
		if next.facts = next.facts[n:]; len(next.facts) == 0 {
			*next = segment{}
			t.unsent = t.unsent[1:]
		}
	}
}

// acknowledged notes what the log has now. It is folded when there is more on
// its way: the log need not wait for that.
func (t *Term) acknowledged(ctx context.Context, a ack) error {
	if a.epoch != t.log.epoch {
		return nil
	}
	for more := true; more && a.err == nil; {
		select {
		case next := <-t.log.acks: // of the same epoch, and later
			a = next
		default:
			more = false
		}
	}
	if a.err != nil {
		return t.recover(ctx, a.err)
	}
	t.ack(a.seq)
	return nil
}

func (t *Term) ack(seq uint64) {
	for len(t.groups) > 0 && t.groups[0].last <= seq {
		done := &t.groups[0]
		t.config.Meter.acknowledged(done.events, done.batch, t.config.Synced, time.Since(done.sent))
		t.groups = t.groups[1:]
	}
	t.acked, t.recoveries = seq, 0
	t.send()
}

// commit folds what the log has, and tells.
func (t *Term) commit() error {
	seq := t.acked
	if seq <= t.machine.Folded() {
		return nil
	}
	for _, fact := range t.machine.PendingFacts() {
		if fact.Seq > seq {
			break
		}
		t.config.Meter.stored(&fact)
		t.observe(&fact, true)
	}
	began := time.Now()
	if err := t.machine.Commit(seq); err != nil {
		return fmt.Errorf("fold: %w", err)
	}
	t.config.Meter.folded(time.Since(began))
	t.log.note(t.store.Cursor())
	t.renewals.folded(seq, t.clock.second(0), int64(t.config.QueryTime/time.Second)+1)
	t.replyFolded()
	return nil
}

// replyFolded replies to everything whose outcome is folded.
func (t *Term) replyFolded() {
	folded := t.machine.Folded()
	n := 0
	for n < len(t.pendingReplies) && t.pendingReplies[n].outcome.Seq <= folded {
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

// replyDurable replies with an outcome that is in the log, and counts it.
func (t *Term) replyDurable(d *decided) {
	t.config.Meter.replied(d.Mutation, d.Batch, d.outcome.Fault)
	d.reply(d.outcome)
}

// lost looks at once for what may have been lost, rather than wait for its
// acknowledgement.
func (t *Term) lost(ctx context.Context, why error) error {
	if len(t.groups) == 0 {
		return nil
	}
	return t.recover(ctx, why)
}

func (t *Term) checkTimeout(ctx context.Context) error {
	if len(t.groups) > 0 && time.Since(t.groups[0].sent) >= t.ackTimeout() {
		return t.recover(ctx, fmt.Errorf("append %d: no acknowledgement within %s", t.groups[0].last, t.ackTimeout()))
	}
	return nil
}
