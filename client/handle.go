package client

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// Handler handles an event. It fails by an error or a panic.
type Handler func(ctx context.Context, e *Event) error

// PoisonHandler handles an event whose handler failed too often, the last time with err.
// If it returns an error, Handle ends; else the event counts as handled.
type PoisonHandler func(ctx context.Context, e *Event, err error) error

// HandleOption is an option of Handle. Every FeedOption is one.
type HandleOption interface{ changeHandle(*handling) }

type handling struct {
	feed    feed
	workers int    // 0 without Workers
	tries   uint64 // 0: no limit
	poison  PoisonHandler
	counter *counter // nil without Poison and Durable
}

type handleOption func(*handling)

func (opt handleOption) changeHandle(h *handling) { opt(h) }

func (opt FeedOption) changeHandle(h *handling) { opt(&h.feed) }

// MaxWorkers is the maximum of Workers.
const MaxWorkers = 1000

// Workers handles the events of up to n documents at the same time. The events of one
// document are handled in order, and a failing event delays only those. An event without a
// document, such as CollectionDeleted, is handled after all events before it and before all
// after it. Without Workers all events are handled one after the other, in the order of the
// log, and a failing event delays all.
func Workers(n int) HandleOption {
	return handleOption(func(h *handling) {
		if n < 1 || n > MaxWorkers {
			h.feed.fail(ErrBadRequest.With("%d workers: use 1 to %d", n, MaxWorkers))
		}
		h.workers = n
	})
}

// Poison passes an event to another handler after its handler has failed n times. With
// Durable, a crash of the process counts as a failure of the first unacknowledged event,
// and the end of Handle does not. An event is put aside without a try in this process only
// if the process before it is known to have crashed in the n-th try or a later one; where
// the user may not edit the consumer, deliveries count instead. Without Poison a failing
// event is retried for ever, and later events of its document wait; once those of failing
// documents are 1000, or have 16 MiB, all events wait.
func Poison(n int, handler PoisonHandler) HandleOption {
	return handleOption(func(h *handling) {
		if n < 1 || handler == nil {
			h.feed.fail(ErrBadRequest.With("poison after %d deliveries: use 1 or more, and a handler", n))
		}
		h.tries, h.poison = uint64(max(n, 0)), handler
	})
}

// Delays between retries of a failing handler: each is twice the last.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Handle calls handler for each event of a feed, as Changes yields them, and acknowledges
// the event when handler returns nil. It retries an event whose handler fails after a
// delay, see Poison.
//
// Handle returns nil at the end of an Until option, ctx's error once ctx is done, a
// *DecodeError at an event that this client cannot read and does not acknowledge, and any
// other error that ends the feed. It returns after the running handlers have; their
// context is done when Handle ends.
func (c *Client) Handle(ctx context.Context, handler Handler, opts ...HandleOption) error {
	var h handling
	for _, opt := range opts {
		opt.changeHandle(&h)
	}
	src, end, err := c.open(ctx, &h.feed)
	if err != nil || src == nil {
		return err
	}
	defer src.close()
	if d, ok := src.(*durable); ok && h.tries > 0 {
		h.counter = &counter{durable: d, limit: h.tries, failed: make(map[uint64]uint64)}
		defer h.counter.end(ctx)
	}
	handler = c.traced(handler)
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var l *lanes
	l = newLanes(h.workers, src, func(j job, own *lane) {
		if err := h.handle(work, handler, l, own, j); err != nil {
			cancel(err)
		}
	})
	err = c.read(work, &h.feed, src, end, func(d delivery, e *Event, fault error) (bool, error) {
		if fault != nil {
			return false, fault
		}
		if h.counter != nil && h.counter.first == 0 {
			h.counter.first = d.seq
		}
		err := l.add(work, job{d, e})
		return err == nil, err
	})
	l.running.Wait()
	if failed := context.Cause(work); failed != nil {
		return failed
	}
	return err
}

// handle handles an event and acknowledges it.
func (h *handling) handle(ctx context.Context, handler Handler, l *lanes, own *lane, j job) error {
	d, e := j.d, j.e
	failed, err := h.counter.begin(ctx, d)
	for retry := firstRetry; h.tries == 0 || failed < h.tries; retry = min(2*retry, lastRetry) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err = h.counter.try(ctx, d, failed); err != nil {
			break
		}
		if err = l.try(ctx, func() error { return guarded(ctx, handler, e) }); err == nil {
			h.counter.handled(d)
			return l.src.done(d)
		}
		if ctx.Err() != nil { // an error caused by the end of Handle is no failure of the event
			return context.Cause(ctx)
		}
		failed++
		h.counter.count(d, failed)
		l.setFailing(own, true)
		if failed == h.tries {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := l.try(ctx, func() error { return h.poison(ctx, e, err) }); err != nil {
		return err
	}
	h.counter.handled(d)
	return l.src.done(d)
}

// guarded calls the handler and returns its panic as an error.
func guarded(ctx context.Context, handler Handler, e *Event) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return handler(ctx, e)
}
