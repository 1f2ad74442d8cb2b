package writer

import (
	"slices"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/schema"
)

// Proposals that take long are deferred, so that others are decided meanwhile:
//
//   - A batch is decided in pieces, one a turn. Batches whose first piece is not all of it
//     queue for the next.
//   - A change of a collection with many due documents expires some of them a turn. Other
//     proposals about that collection queue after it.
//   - A restore waits for what is read of the log: see history.go.
//
// While a mutation of the stream is deferred, none after it is decided. After a failed
// append, earlier ones may have to be decided again before it.

const (
	pieceWork  = maxGroupBytes / 2 // of a batch in a turn, so that others have the rest
	mostPieces = 16                // batches with results that wait for their next piece
)

var (
	tooManyBatches = schema.ErrOverloaded.With("too many large batches are waiting: try again later")
	tooManyQueued  = schema.ErrOverloaded.With("too many mutations wait for a change of their collection: try again later")
)

// change is a change of a collection that is under way, and the proposals queued after it.
type change struct {
	*Proposal
	queue []*Proposal
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

// waits defers a proposal if it has to wait for another, and reports whether it did.
func (t *Term) waits(p *Proposal) bool {
	if i := t.changeOf(p); i >= 0 && t.changes[i].Proposal != p && !t.changes[i].Proposal.after(p) {
		if c := &t.changes[i]; p.Done == nil || len(c.queue) < t.config.Queue {
			c.queue = append(c.queue, p)
			t.stall(p)
		} else {
			p.refuse(tooManyQueued)
		}
		return true
	}
	if p.Batch == nil || p.Batch.Atomic || len(t.pieces) < mostPieces || t.pieces[0] == p {
		return false
	}
	if len(t.pieces) < t.config.Queue {
		t.pieces = append(t.pieces, p)
	} else {
		p.refuse(tooManyBatches)
	}
	return true
}

// changeOf returns the index of the change under way in the collection of a proposal, or
// -1.
func (t *Term) changeOf(p *Proposal) int {
	return slices.IndexFunc(t.changes, func(c change) bool { return p.Internal == nil && c.collection() == p.collection() })
}

// stall stops the stream after one of its mutations until unstall.
func (t *Term) stall(p *Proposal) {
	if p.stream() && !slices.Contains(t.stalling, p) {
		t.stalling = append(t.stalling, p)
	}
}

func (t *Term) unstall(p *Proposal) {
	if i := slices.Index(t.stalling, p); i >= 0 {
		t.stalling = slices.Delete(t.stalling, i, i+1)
	}
}

// stream reports whether the proposal is a mutation of the stream.
func (p *Proposal) stream() bool { return p.Mutation != nil && p.Done == nil }

// after reports whether p comes after other in the stream.
func (p *Proposal) after(other *Proposal) bool {
	return p.stream() && other.stream() && p.Mutation.Cause > other.Mutation.Cause
}

// changed: p, if it was the pending change of its collection, is done; what is queued after
// it comes next.
func (t *Term) changed(p *Proposal) {
	if i := t.changeOf(p); i >= 0 && t.changes[i].Proposal == p {
		t.retry = append(t.changes[i].queue, t.retry...)
		t.changes = slices.Delete(t.changes, i, i+1)
	}
}

// resumeDeferred goes on with changes under way and the first batch in pieces, by as much as
// leaves room for others.
func (t *Term) resumeDeferred() error {
	for _, c := range slices.Clone(t.changes) {
		// Others need a place in flight, too.
		if t.full() || t.machine.Pending() > mostSlice {
			break
		}
		if slices.ContainsFunc(t.stalling, c.after) || slices.ContainsFunc(t.retry, c.after) {
			continue
		}
		if _, err := t.decide(c.Proposal); err != nil {
			return err
		}
	}
	if len(t.pieces) == 0 || t.full() {
		return nil
	}
	_, err := t.decide(t.pieces[0])
	return err
}

// settleDeferred is settle for batches of which a part is decided.
func (t *Term) settleDeferred(acked uint64) {
	for p := range t.recalling {
		t.settleBatch(p, acked)
	}
	for _, p := range t.pieces {
		t.settleBatch(p, acked)
	}
	t.pieces = slices.DeleteFunc(t.pieces, func(p *Proposal) bool { return p.over })
}

func (t *Term) settleBatch(p *Proposal, acked uint64) {
	switch {
	case p.run == nil || p.judged <= acked:
	case p.first == 0 || p.first > acked:
		p.restart()
	default:
		p.refuse(batchHalfway)
	}
}

// refuseDeferred replies fault to the deferred requests, except those whose reads
// are under way, and returns their number. Mutations of the stream stay.
func (t *Term) refuseDeferred(fault *schema.Error) (refused int) {
	for _, p := range t.pieces {
		p.refuse(p.undecided(fault))
		refused++
	}
	t.pieces = nil
	changes := t.changes
	t.changes = nil
	for _, c := range changes {
		stay := slices.DeleteFunc(append([]*Proposal{c.Proposal}, c.queue...), func(p *Proposal) bool {
			if p.Done == nil {
				return false
			}
			p.refuse(fault)
			refused++
			return true
		})
		t.retry = append(stay, t.retry...)
	}
	return refused
}

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

// restart makes a batch be decided from its beginning.
func (p *Proposal) restart() { p.run, p.first, p.judged = nil, 0, 0 }
