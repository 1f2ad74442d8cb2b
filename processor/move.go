package processor

import (
	"context"
	"errors"
	"time"

	"github.com/lapsedb/lapse/processor/observe"
)

// handOver asks roles to end the term, and to leave the lease to a process.
type handOver struct {
	to   string
	left chan struct{} // is closed when the lease is released
}

// ErrNotWriter means that a process hands over what it does not write.
var ErrNotWriter = errors.New("this process does not write it")

// HandOver ends the term of this process, and leaves the lease to another one. It returns
// when the lease is free; the other process has it in a moment, unless a third one takes it
// or this one takes it back because none does.
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
	case <-h.left:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mostBehind: lag is reported up to it.
const mostBehind = time.Second

// Behind returns how many events of the log are not folded, and how long it takes to fold
// them: a second if it takes longer, or if the log does not answer.
func (p *Processor) Behind(ctx context.Context) (events uint64, took time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, mostBehind)
	defer cancel()
	began := time.Now()
	last, err := p.log.Last(ctx)
	if seq := p.Seq(); err == nil && last > seq {
		events = last - seq
		err = p.store.Wait(ctx, last)
	}
	if err != nil {
		return events, mostBehind
	}
	return events, time.Since(began)
}
