package writer

import (
	"slices"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/schema"
)

// A term has one queue of what is not decided, in the order in which it is to be decided: what
// a failed append undid, then as received. Each turn walks it once from the front. What is
// decided or refused leaves it; what takes long stays in its place, so that others are decided
// meanwhile. Proposal.need says what it stays for:
//
//   - NoNeed: nothing of its own. It waits for its turn, or for one before it.
//   - NeedTurn: a batch is decided in pieces, the first such batch by one piece a turn.
//   - NeedCommit: a change of a collection with many due documents expires some of them a turn.
//     Proposals after it about that collection stay, too. An atomic batch waits until nothing
//     is in flight (phase deferring).
//   - NeedLog: a restore waits for what a goroutine reads of the log (history.go). The goroutine
//     owns the proposal meanwhile, but for its run.
//
// Mutations of the stream are judged in order: while one stays, so do those after it, and none
// is received.

const (
	pieceWork  = maxGroupBytes / 2 // of a batch in a turn, so that others have the rest
	mostPieces = 16                // batches with results that wait for their next piece
)

var tooManyWait = schema.ErrOverloaded.With("too many mutations wait for large batches or a change of their collection: try again later")

// walk is a pass over the queue.
type walk struct {
	*Term
	most     int // events in flight with which a change or a piece goes on
	at       int // index in queue of the next proposal
	kept     int // proposals before it that stay
	removed  bool
	batches  int                     // of those that stay: batches decided in part
	changing []schema.CollectionName // collections of changes that stay
	stalled  bool                    // a mutation of the stream stays
}

// next returns the next proposal to decide, if need be one received now; nil for none. Call
// pass after it.
func (w *walk) next() *Proposal {
	for {
		if p := w.find(); p != nil || !w.receive() {
			return p
		}
	}
}

// find passes those that stay and returns the next one that is ready, nil for none.
func (w *walk) find() *Proposal {
	for ; w.at < len(w.queue); w.pass() {
		if p := w.queue[w.at]; w.ready(p) {
			return p
		}
		if p := w.queue[w.at]; w.kept >= w.config.Queue && p.Done != nil && p.need == machine.NoNeed {
			p.refuse(p.undecided(tooManyWait))
		}
	}
	return nil
}

// ready reports whether a proposal can be decided after those that stay.
func (w *walk) ready(p *Proposal) bool {
	switch {
	case w.stalled && p.stream(), slices.Contains(w.changing, p.collection()), p.need == machine.NeedLog:
		return false
	case p.need == machine.NeedTurn:
		return w.batches == 0 && w.most >= 0
	case p.changes():
		return w.machine.Pending() <= w.most // others need a place in flight, too
	}
	return p.Batch == nil || p.Batch.Atomic || w.batches < mostPieces
}

// pass goes past a proposal, and removes it if it is over.
func (w *walk) pass() {
	p := w.queue[w.at]
	w.at++
	if p.over {
		w.queue[w.at-1], w.removed = nil, true
		return
	}
	w.kept++
	w.stalled = w.stalled || p.stream()
	switch {
	case p.need == machine.NeedTurn:
		w.batches++
	case p.changes():
		w.changing = append(w.changing, p.collection())
	}
}

// receive appends a request or a mutation of the stream, at random, to the queue, and reports
// whether there was one.
func (w *walk) receive() bool {
	mutations := w.Mutations
	if w.stalled {
		mutations = nil
	}
	select {
	case p := <-w.Proposals:
		w.queue = append(w.queue, p)
	case m := <-mutations:
		w.publish(m)
	default:
		return false
	}
	return true
}

// end ends the walk.
func (w *walk) end() {
	if w.removed {
		w.queue = slices.DeleteFunc(w.queue, func(p *Proposal) bool { return p == nil })
	}
}

// publish queues a mutation of the stream.
func (t *Term) publish(m *schema.Mutation) {
	t.published++
	t.queue = append(t.queue, &Proposal{Mutation: m})
}

// look reports whether the queue has something to decide before the term receives more, and
// whether it has a mutation of the stream.
func (t *Term) look() (ready, stalled bool) {
	w := walk{Term: t}
	defer w.end()
	return w.find() != nil, w.stalled
}

// decideQueue decides what is ready, up to the limits of a turn.
func (t *Term) decideQueue(most int) error {
	w := walk{Term: t, most: most}
	defer w.end()
	for n, bytes := 0, 0; n < turnRequests && bytes < maxGroupBytes && !t.full() && t.move == nil; n++ {
		p := w.next()
		if p == nil {
			break
		}
		t.batches = p.Batch != nil || n > 0 && t.batches
		size, err := t.decide(p)
		if err != nil {
			return err
		}
		bytes += size
		w.pass()
	}
	return nil
}

// refuseQueued replies fault to the requests in the queue, except those whose reads are under
// way, and returns their number. Mutations of the stream stay.
func (t *Term) refuseQueued(fault *schema.Error) int {
	before := len(t.queue)
	t.queue = slices.DeleteFunc(t.queue, func(p *Proposal) bool {
		refused := p.Done != nil && p.need != machine.NeedLog
		if refused {
			p.refuse(p.undecided(fault))
		}
		return refused
	})
	return before - len(t.queue)
}

// settleQueue is settle for batches of which a part is decided.
func (t *Term) settleQueue(acked uint64) {
	t.queue = slices.DeleteFunc(t.queue, func(p *Proposal) bool {
		switch {
		case p.run == nil || p.judged <= acked:
		case p.first == 0 || p.first > acked:
			p.restart()
		default:
			p.refuse(batchHalfway)
		}
		return p.over
	})
}

// collection returns the collection that a proposal is about, "" for an internal event.
func (p *Proposal) collection() schema.CollectionName {
	switch {
	case p.Mutation != nil:
		return p.Mutation.Collection
	case p.Batch != nil:
		return p.Batch.Collection
	}
	return ""
}

// changes reports whether the proposal is a change of a collection that is under way.
func (p *Proposal) changes() bool { return p.Mutation != nil && p.need == machine.NeedCommit }

// stream reports whether the proposal is a mutation of the stream.
func (p *Proposal) stream() bool { return p.Mutation != nil && p.Done == nil }

// refuse replies fault, and nothing later.
func (p *Proposal) refuse(fault *schema.Error) {
	p.over = true
	p.reply(machine.Outcome{Code: fault.Code, Fault: fault})
}

// undecided returns fault, or batchHalfway for a batch of which a part is decided.
func (p *Proposal) undecided(fault *schema.Error) *schema.Error {
	if p.first != 0 {
		return batchHalfway
	}
	return fault
}

// restart makes a proposal be decided from its beginning.
func (p *Proposal) restart() {
	p.run, p.first, p.judged, p.over = nil, 0, 0, false
	if p.need != machine.NeedLog {
		p.need = machine.NoNeed
	}
}
