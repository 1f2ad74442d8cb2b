package processor

import (
	"context"
	"errors"

	"github.com/lapsedb/lapse/processor/observe"
)

// handOver asks roles to end the term, and to leave the lease to a process.
type handOver struct {
	to       string
	released chan struct{} // is closed when the lease is released
}

// ErrNotWriter means that a process hands over what it does not write.
var ErrNotWriter = errors.New("this process does not write it")

// HandOver ends the term of this process, and leaves the lease to another one. It returns
// when the lease is free; the other process has it in a moment, unless a third one takes it
// or this one takes it back because none does. It returns ErrNotWriter if the processor
// stops first, and ctx's error if it takes longer; a hand-over that has begun then still
// goes on.
func (p *Processor) HandOver(ctx context.Context, to string) error {
	if p.Role() != observe.Writer || p.lease == nil {
		return ErrNotWriter
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	h := handOver{to, make(chan struct{})}
	select {
	case p.moves <- h:
	case <-p.reading.Done():
		return ErrNotWriter
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-h.released:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
