package processor

import (
	"context"

	"github.com/lapsedb/lapse/processor/writer"
)

// Move is a move of a manual clock, see Advance.
type Move = writer.Move

// Advance judges the requests and the acknowledged mutations that came before it, and then
// moves the manual clock of Options. It returns the sequence of the last event when all that
// the move brought is in the log and folded, however long that takes. An end of ctx may leave
// the clock on its way.
func (p *Processor) Advance(ctx context.Context, move *Move) (seq uint64, err error) {
	if err := p.service.Settle(); err != nil {
		return 0, err
	}
	if err := p.judged(ctx); err != nil {
		return 0, err
	}
	o, err := p.writer.Await(ctx, &writer.Proposal{Move: move})
	return o.Seq, err
}

// judged returns when the log has the outcome of all mutations of the stream: of those
// acknowledged before the call, since the end of the stream is read once.
func (p *Processor) judged(ctx context.Context) error {
	info, err := p.service.Mutations.Info(ctx)
	if err != nil {
		return err
	}
	for cursor := p.store.Cursor(); cursor.Mutations < info.State.LastSeq; cursor = p.store.Cursor() {
		if err := p.store.Wait(ctx, cursor.Seq+1); err != nil {
			return err
		}
	}
	return nil
}
