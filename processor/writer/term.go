package writer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Term is one period as the writer: from Begin, which fences off earlier writers, to
// the end of Run. It is never reused. One goroutine, in Run, decides; its events are in
// flight to the log while it decides more. Once the log acknowledges them, it folds them
// and sends the replies.
type Term struct {
	*Writer
	name    string // in WriterStarted
	machine *machine.Machine
	phase   phase

	queue          []*Proposal // what is not decided, in order, see queue.go
	history        *history
	recalling      int            // proposals whose reads of the log are under way
	recalled       chan *Proposal // whose reads ended
	recallers      chan struct{}  // a place for each that reads
	reading        sync.WaitGroup
	ctx            context.Context // ends with the term, for reads
	cancel         context.CancelFunc
	pendingReplies []decided // by outcome.Seq
	replyBytes     int       // of their bodies
	unsent         []segment // decided and not appended, in order
	groups         []group   // appends in flight, oldest first
	acked          uint64    // last sequence acknowledged
	recoveries     int       // since the last acknowledgement
	shorter        time.Time // since when the log ends before the cursor; zero if it does not
	batches        bool      // the last proposals decided were batches
	published      uint64    // mutations received from the stream
	share          share     // of expiries
	searched       int64     // log time, ms, of the last search for due documents
	move           *Proposal // of the clock, under way; nil for none
}

// decided is a proposal whose outcome is not acknowledged.
type decided struct {
	*Proposal
	first   uint64 // sequence of the first event it may have made
	outcome machine.Outcome
	after   uint64 // sequence that is folded before the reply
}

// Begin begins a term: it reads the log to its end and moves the fence there. After
// that no earlier writer can append.
func (w *Writer) Begin(ctx context.Context) (*Term, error) {
	t := w.newTerm()
	w.refuse(notWriter) // submitted too late for the last term
	w.Term.Store(t)
	if _, err := t.fence(ctx, nil); err != nil {
		t.Leave()
		return nil, err
	}
	var err error
	if t.machine, err = machine.NewMachine(w.store); err != nil {
		t.Leave()
		return nil, err
	}
	t.machine.Largest = w.config.Largest
	t.machine.History = t.history
	t.searched = t.machine.Time()
	return t, nil
}

func (w *Writer) newTerm() *Term {
	t := &Term{Writer: w, name: rand.Text(), history: &history{Writer: w},
		recalled: make(chan *Proposal), recallers: make(chan struct{}, recallers)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Run decides until ctx ends, then waits until nothing is in flight. An error ends
// the term, and may end the processor.
func (t *Term) Run(ctx context.Context) (err error) {
	defer t.Leave()
	defer func() {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = nil // the term ended while the log was unreachable
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t.config.Meter.Beat(t.machine.Pending())
		if err := t.turn(); err != nil {
			return err
		}
		if err := t.commit(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return t.end()
		}
		ready, stalled := t.look()
		timer.Reset(t.untilNext(ready))
		proposals, mutations := t.sources(ready, stalled)
		if err := t.await(ctx, proposals, mutations, timer.C); err != nil {
			return err
		}
	}
}

// sources returns what to receive from: nothing while something is ready in the queue, or
// while nothing can be decided.
func (t *Term) sources(ready, stalled bool) (proposals chan *Proposal, mutations chan *schema.Mutation) {
	switch {
	case t.full() || t.gathering() || t.move != nil || ready && t.phase != doubting:
		return nil, nil
	case t.phase == doubting || stalled:
		return t.Proposals, nil
	}
	return t.Proposals, t.Mutations
}

// await handles the next message, or the end of timer or ctx.
func (t *Term) await(ctx context.Context, proposals <-chan *Proposal, mutations <-chan *schema.Mutation, timer <-chan time.Time) error {
	select {
	case a := <-t.log.Acks:
		return t.acknowledged(ctx, a)
	case <-t.log.Connected:
		return t.lost(ctx, errors.New("the connection was lost"))
	case <-t.log.Elected:
		return t.lost(ctx, errors.New("the stream has a new leader"))
	case p := <-proposals:
		t.queue = append(t.queue, p)
	case m := <-mutations:
		t.publish(m)
	case p := <-t.recalled:
		t.resumeRecalled(p)
	case <-timer:
		return t.checkTimeout(ctx)
	case <-ctx.Done():
	}
	return nil
}

// ackTimeout returns how long an acknowledgement may take before the term reads the log
// to recover. It is at most the lease TTL, after which a standby takes over.
func (t *Term) ackTimeout() time.Duration {
	if t.config.Lease > 0 {
		return min(ackTimeout, t.config.Lease)
	}
	return ackTimeout
}

// end drains, and notes WriterPresent if the end of the log is old.
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

// drain waits until nothing is in flight, so that a clean stop replies to every
// request.
func (t *Term) drain() error {
	timeout := time.After(StopTimeout)
	for len(t.groups) > 0 {
		select {
		case a := <-t.log.Acks:
			if a.Epoch != t.log.Epoch {
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
			return fmt.Errorf("stopping: %d events were not acknowledged within %s", t.machine.Pending(), StopTimeout)
		}
	}
	return nil
}

// Leave ends the term and refuses every proposal that it leaves undecided.
func (t *Term) Leave() {
	t.Term.Store(nil)
	t.cancel()
	t.reading.Wait()
	for _, p := range t.queue {
		p.need = machine.NoNeed // no reads are under way
	}
	t.abandon(notWriter)
	if t.move != nil {
		t.move.refuse(notWriter)
	}
	t.pendingReplies, t.queue = nil, nil
	t.refuse(notWriter)
}

const (
	// resumedAfter is the shortest pause after which a writer notes that it resumed; well
	// below the lateness of expiries that an audit allows.
	resumedAfter = 20 * time.Second
	// minPresence is the minimum age of the log's end at which a running writer notes
	// its presence. stopPresence is the maximum age at which a stopping writer does.
	minPresence  = time.Minute
	stopPresence = 5 * time.Minute
)

// present emits WriterPresent if the end of the log is older than age, and reports
// whether it did. Without it an idle database would look, at its next start, as if
// it had been down, and its clock as if it were ahead. A database without
// collections has nothing that could expire, and needs none; nor does a manual clock, which
// is not doubted.
func (t *Term) present(now int64, age time.Duration) bool {
	if t.Clock.Manual() || now-t.machine.EndTime() < age.Milliseconds() || len(t.store.Collections()) == 0 {
		return false
	}
	t.machine.Note(now, schema.WriterPresent, nil)
	return true
}

// resume emits WriterResumed if the term could not search for due documents for a
// while: its clock was not trusted, or the machine slept. That explains late expiries
// to a reader of the log.
func (t *Term) resume(now int64) {
	if now-t.searched >= resumedAfter.Milliseconds() {
		t.machine.Note(now, schema.WriterResumed, nil)
	}
	t.searched = now
}
