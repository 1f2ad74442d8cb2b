package processor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// What the writer decided goes from unsent, by way of groups that are on their
// way to the log, into the projection; outcomes wait until then.

// stretch is a stretch of the log to be.
type stretch struct {
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
func (w *writer) appendAtomic(first uint64) {
	facts := w.machine.Take()
	n := 0
	for n < len(facts) && facts[n].Seq < first {
		n++
	}
	w.queue(facts[:n], false)
	w.queue(facts[n:], true)
	w.send()
}

// append sends what was decided to the log.
func (w *writer) append() {
	w.queue(w.machine.Take(), false)
	w.send()
}

func (w *writer) queue(facts []projections.Fact, atomic bool) {
	if len(facts) == 0 {
		return
	}
	if n := len(w.unsent); n > 0 && !atomic && !w.unsent[n-1].atomic {
		last := &w.unsent[n-1]
		last.facts = append(last.facts, facts...)
		return
	}
	// Clipped, since what is behind it is the machine's.
	w.unsent = append(w.unsent, stretch{slices.Clip(facts), atomic})
}

// send appends what is queued, as far as that may be on its way at a time: an
// atomic batch, which knows its place only by its number, starts when all
// before it is known to be in the log. Single events follow each other closer,
// but a few do not follow until there are more of them or nothing is on its way:
// each group costs an acknowledgement and a fold, and where it is synced, a sync.
// Where the log is alone, nothing follows until all before it is there.
func (w *writer) send() {
	for len(w.unsent) > 0 {
		next := &w.unsent[0]
		n, under := len(next.facts), len(w.groups)
		sync := w.options.Durability == Fsync
		batch := n > 1 && (next.atomic || w.log.alone || sync && n >= atomicFrom)
		switch {
		case (batch || w.log.alone) && under > 0,
			sync && under > 0 && (under >= fewGroups || w.groups[under-1].batch),
			!sync && under >= fewGroups && n < fullGroup:
			return
		case batch:
			n = min(n, w.options.AtomicBatch)
		}
		last := next.facts[n-1].Seq
		w.groups = append(w.groups, group{last: last, sent: time.Now(), batch: batch, events: n})
		// A failure shows as a missing acknowledgement, too, and is mended there.
		if err := w.log.Append(next.facts[:n], batch); err != nil {
			w.options.Events.AppendFailed(AppendFailure{Seq: last, Err: err})
		}
		if next.facts = next.facts[n:]; len(next.facts) == 0 {
			*next = stretch{}
			w.unsent = w.unsent[1:]
		}
	}
}

// acknowledged notes what the log has now. It is folded when there is more on
// its way: the log need not wait for that.
func (w *writer) acknowledged(ctx context.Context, a ack) error {
	if a.epoch != w.log.epoch {
		return nil
	}
	for more := true; more && a.err == nil; {
		select {
		case next := <-w.log.acks: // of the same epoch, and later
			a = next
		default:
			more = false
		}
	}
	if a.err != nil {
		return w.recover(ctx, a.err)
	}
	w.landed(a.seq)
	return nil
}

func (w *writer) landed(seq uint64) {
	for len(w.groups) > 0 && w.groups[0].last <= seq {
		w.options.Monitor.acknowledged(w.groups[0], w.options.Durability == Fsync)
		w.groups = w.groups[1:]
	}
	w.inLog, w.recoveries = seq, 0
	w.send()
}

// commit folds what the log has, and tells.
func (w *writer) commit() error {
	seq := w.inLog
	if seq <= w.machine.Folded() {
		return nil
	}
	w.observe(seq)
	began := time.Now()
	if err := w.machine.Commit(seq); err != nil {
		return fmt.Errorf("fold: %w", err)
	}
	w.options.Monitor.folded(time.Since(began))
	w.log.note(w.store.Cursor())
	w.renewals.folded(seq, w.clock.second(0), int64(w.options.Query.Time/time.Second)+1)
	w.tell()
	return nil
}

// observe notes what the log has now, and how late expiries were.
func (w *writer) observe(seq uint64) {
	for i := range w.machine.pending {
		fact := &w.machine.pending[i]
		if fact.Seq > seq {
			return
		}
		w.options.Monitor.stored(fact)
		w.late(fact)
	}
}

// late notes how late an expiry was.
func (w *writer) late(fact *projections.Fact) {
	if fact.Type != schema.DocumentExpired {
		return
	}
	due := fact.Deadline.At * 1000
	if c, ok := w.store.Collection(fact.Collection); ok {
		due = max(due, c.Time) // a change of policy made it due
	}
	w.lateness.record(fact.Time, fact.Time-due)
	if !w.gone.Load() { // others count what they append
		w.options.Monitor.late(fact.Time - due)
	}
}

// tell answers everything whose outcome is folded.
func (w *writer) tell() {
	folded := w.machine.Folded()
	n := 0
	for n < len(w.waiting) && w.waiting[n].outcome.Seq <= folded {
		w.options.Monitor.told(&w.waiting[n])
		w.waiting[n].answer(w.waiting[n].outcome)
		w.untold -= len(w.waiting[n].outcome.Body)
		n++
	}
	clear(w.waiting[:n])
	if n == len(w.waiting) {
		w.waiting = w.waiting[:0]
	} else {
		w.waiting = w.waiting[n:]
	}
}

// lost looks at once for what may have been lost, rather than wait for its
// acknowledgement.
func (w *writer) lost(ctx context.Context, why error) error {
	if len(w.groups) == 0 {
		return nil
	}
	return w.recover(ctx, why)
}

func (w *writer) checkTimeout(ctx context.Context) error {
	if len(w.groups) > 0 && time.Since(w.groups[0].sent) >= w.ackTimeout() {
		return w.recover(ctx, fmt.Errorf("append %d: no acknowledgement within %s", w.groups[0].last, w.ackTimeout()))
	}
	return nil
}
