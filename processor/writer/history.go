package writer

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/schema"
)

// A restore needs content that only the log has. Reading it takes longer than deciding a
// thousand mutations, so the writer does not wait for it: the proposal stays in the queue, a
// goroutine reads, and the writer decides the proposal again with what was read, if that is
// still the last incarnation of the document.

const (
	recallTimeout = 10 * time.Second // of all reads for one proposal
	eventTimeout  = 2 * time.Second  // of one
	recallBytes   = machine.MaxAtomicWork / 2
	recallers     = 4    // proposals whose reads are under way
	mostRecalls   = 1024 // proposals that wait for reads; more are refused
	mostRereads   = 8    // reads for one restore, while its document changes
)

var (
	tooManyRecalls = schema.ErrOverloaded.With("too many restores are waiting: try again later")
	logUnread      = schema.ErrUnavailable.With("the log could not be read for the restore: try again")
	logUnfinished  = schema.ErrTimeout.With("the content was not found in the log within %s: restore a version that its history shows as created or replaced", recallTimeout)
	keptChanging   = schema.ErrUnavailable.With("the document changed while the log was read for its restore: try again")
)

// wanted is what the machine asked for: see machine.History.
type wanted struct {
	mutation *schema.Mutation
	seq      uint64
}

// recalled is what was read for it.
type recalled struct {
	machine.Former
	seq   uint64
	fault *schema.Error
	reads int

	// Of a search for the last incarnation: it is still the last while these are the same.
	incarnation, ended uint64
}

// history is machine.History over what was read for the proposal that is being decided.
type history struct {
	*Writer
	read   map[*schema.Mutation]recalled
	unread wanted // and not read
}

func (h *history) Former(_ *schema.Collection, mu *schema.Mutation, seq uint64) (machine.Former, bool, error) {
	r, ok := h.read[mu]
	if ok && r.fault != nil {
		return machine.Former{}, true, r.fault
	}
	if ok = ok && r.seq == seq; ok && seq == 0 {
		incarnation, ended, err := h.last(mu)
		if err != nil {
			return machine.Former{}, false, err
		}
		ok = incarnation == r.incarnation && ended == r.ended
	}
	h.unread = wanted{mu, seq}
	return r.Former, ok, nil
}

// last returns what changes when a document has another last incarnation.
func (w *Writer) last(mu *schema.Mutation) (incarnation, ended uint64, err error) {
	if c, ok := w.store.Collection(mu.Collection); ok {
		incarnation = c.Incarnation
	}
	ended, err = w.store.Ended(mu.Collection, mu.ID)
	return incarnation, ended, err
}

// recall begins to read what a proposal needs.
func (t *Term) recall(p *Proposal) {
	if t.recalling >= mostRecalls && p.Done != nil {
		p.refuse(p.undecided(tooManyRecalls))
		return
	}
	want := append([]wanted{t.history.unread}, p.foresee()...)
	t.recalling++
	t.reading.Go(func() {
		select {
		case t.recallers <- struct{}{}:
			defer func() { <-t.recallers }() // so that few hold what they read
		case <-t.ctx.Done():
			return
		}
		p.recall(t.ctx, t.Writer, want)
		select {
		case t.recalled <- p:
		case <-t.ctx.Done():
		}
	})
}

// resumeRecalled lets a proposal be decided whose reads ended.
func (t *Term) resumeRecalled(p *Proposal) {
	t.recalling--
	p.need = machine.NoNeed
}

// foresee returns what the other restores of a batch will want, so that one reading serves
// many.
func (p *Proposal) foresee() (want []wanted) {
	if p.Batch == nil {
		return nil
	}
	for _, op := range p.run.Rest() {
		mu := op.Mutation
		if mu == nil || mu.Op != schema.DocumentRestore || mu.Fault != nil {
			continue
		}
		if seq, err := strconv.ParseUint(mu.Version, 10, 64); err == nil || mu.Version == "" {
			want = append(want, wanted{mu, seq})
		}
	}
	return want
}

// recall reads what the proposal wants, up to recallBytes. It runs on a goroutine of its
// own, which owns the proposal meanwhile.
func (p *Proposal) recall(ctx context.Context, w *Writer, want []wanted) {
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	before := p.read
	p.read = make(map[*schema.Mutation]recalled, len(want))
	bytes := 0
	for _, item := range want {
		if _, ok := p.read[item.mutation]; ok {
			continue
		}
		r, ok := before[item.mutation]
		switch {
		case bytes > recallBytes && !p.Batch.Atomic:
			return // the others are read when the machine wants them
		case bytes > recallBytes:
			r = recalled{fault: machine.TooMuchRead()}
		case !ok || item == want[0]:
			r = recalled{seq: item.seq, reads: r.reads + 1}
			r.readFrom(ctx, w, item.mutation)
		}
		bytes += r.size()
		p.read[item.mutation] = r
	}
}

func (r *recalled) size() int {
	if r.Content == nil {
		return 0
	}
	return len(r.Content.Body)
}

// readFrom reads what a mutation wants, unless that was tried too often.
func (r *recalled) readFrom(ctx context.Context, w *Writer, mu *schema.Mutation) {
	if r.reads > mostRereads {
		r.fault = keptChanging
		return
	}
	var err error
	if r.incarnation, r.ended, err = w.last(mu); err == nil {
		r.Former, err = machine.FindFormer(w.History(ctx), mu.Collection, mu.ID, r.seq)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		r.fault = logUnfinished
	case err != nil:
		r.fault = logUnread
	}
}

// History returns the log as machine.Log.
func (w *Writer) History(ctx context.Context) machine.Log { return logReader{ctx, w} }

// logReader is machine.Log.
type logReader struct {
	ctx context.Context
	*Writer
}

func (l logReader) Last(name schema.CollectionName, id schema.DocumentID) (uint64, error) {
	return l.store.LastOf(name, id)
}

func (l logReader) Event(seq uint64) (*schema.Event, error) {
	ctx, cancel := context.WithTimeout(l.ctx, eventTimeout)
	defer cancel()
	e, err := l.log.Event(ctx, seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case e.Type == schema.NoEvent:
		return nil, nil
	}
	return e, nil
}
