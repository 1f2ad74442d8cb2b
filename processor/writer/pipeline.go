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
	facts := t.Machine.Take()
	n := 0
	for n < len(facts) && facts[n].Seq < first {
		n++
	}
	t.Queue(facts[:n], false)
	t.Queue(facts[n:], true)
	t.Send()
}

// append sends what was decided to the log.
func (t *Term) append() {
	t.Queue(t.Machine.Take(), false)
	t.Send()
}

func (t *Term) Queue(facts []projections.Fact, atomic bool) {
	if len(facts) == 0 {
		return
	}
	if n := len(t.Unsent); n > 0 && !atomic && !t.Unsent[n-1].atomic {
		last := &t.Unsent[n-1]
		last.facts = append(last.facts, facts...)
		return
	}
	// Clipped, since what is behind it is the machine's.
	t.Unsent = append(t.Unsent, segment{slices.Clip(facts), atomic})
}

// Send appends what is queued, as far as that may be on its way at a time: an
// atomic batch, which knows its place only by its number, starts when all
// before it is known to be in the log. Single events follow each other closer,
// but a few do not follow until there are more of them or nothing is on its way:
// each group costs an acknowledgement and a fold, and where it is synced, a sync.
// Where the log is alone, nothing follows until all before it is there.
func (t *Term) Send() {
	for len(t.Unsent) > 0 {
		next := &t.Unsent[0]
		n, under := len(next.facts), len(t.Groups)
		sync := t.config.Synced
		batch := n > 1 && (next.atomic || t.Log.Alone || sync && n >= atomicFrom)
		switch {
		case (batch || t.Log.Alone) && under > 0,
			sync && under > 0 && (under >= fewGroups || t.Groups[under-1].batch),
			!sync && under >= fewGroups && n < fullGroup:
			return
		case batch:
			n = min(n, t.config.AtomicBatch)
		}
		last := next.facts[n-1].Seq
		t.Groups = append(t.Groups, group{last: last, sent: time.Now(), batch: batch, events: n})
		// A failure shows as a missing acknowledgement, too, and is mended there.
		if err := t.Log.Append(next.facts[:n], batch); err != nil {
			t.config.Events(observe.AppendFailed{Seq: last, Err: err})
		}
		if next.facts = next.facts[n:]; len(next.facts) == 0 {
			*next = segment{}
			t.Unsent = t.Unsent[1:]
		}
	}
}

// acknowledged notes what the log has now. It is folded when there is more on
// its way: the log need not wait for that.
func (t *Term) acknowledged(ctx context.Context, a eventlog.Ack) error {
	if a.Epoch != t.Log.Epoch {
		return nil
	}
	for more := true; more && a.Err == nil; {
		select {
		case next := <-t.Log.Acks: // of the same epoch, and later
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
	for len(t.Groups) > 0 && t.Groups[0].last <= seq {
		done := &t.Groups[0]
		t.config.Meter.Acknowledged(done.events, done.batch, t.config.Synced, time.Since(done.sent))
		t.Groups = t.Groups[1:]
	}
	t.acked, t.recoveries = seq, 0
	t.Send()
}

// commit folds what the log has, and tells.
func (t *Term) commit() error {
	seq := t.acked
	if seq <= t.Machine.Folded() {
		return nil
	}
	for _, fact := range t.Machine.PendingFacts() {
		if fact.Seq > seq {
			break
		}
		t.config.Meter.Stored(&fact)
		t.Observe(&fact, true)
	}
	began := time.Now()
	if err := t.Machine.Commit(seq); err != nil {
		return fmt.Errorf("fold: %w", err)
	}
	t.config.Meter.Folded(time.Since(began))
	t.Log.Note(t.store.Cursor())
	t.Renewals.folded(seq, t.Clock.Second(0), int64(t.config.QueryTime/time.Second)+1)
	t.replyFolded()
	return nil
}

// replyFolded replies to everything whose outcome is folded.
func (t *Term) replyFolded() {
	folded := t.Machine.Folded()
	n := 0
	for n < len(t.pendingReplies) && t.pendingReplies[n].outcome.Seq <= folded {
		t.replyDurable(&t.pendingReplies[n])
		t.ReplyBytes -= len(t.pendingReplies[n].outcome.Body)
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
	t.config.Meter.Replied(d.Mutation, d.Batch, d.outcome.Fault)
	d.reply(d.outcome)
}

// lost looks at once for what may have been lost, rather than wait for its
// acknowledgement.
func (t *Term) lost(ctx context.Context, why error) error {
	if len(t.Groups) == 0 {
		return nil
	}
	return t.recover(ctx, why)
}

func (t *Term) checkTimeout(ctx context.Context) error {
	if len(t.Groups) > 0 && time.Since(t.Groups[0].sent) >= t.ackTimeout() {
		return t.recover(ctx, fmt.Errorf("append %d: no acknowledgement within %s", t.Groups[0].last, t.ackTimeout()))
	}
	return nil
}
