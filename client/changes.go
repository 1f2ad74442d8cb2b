package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/lapsedb/lapse/schema"
)

// source delivers messages of the log.
type source interface {
	// next waits for a message. It fails with ctx's error when ctx is done.
	next(ctx context.Context) (jetstream.Msg, error)
	// done acknowledges the message that next returned last.
	done(msg jetstream.Msg) error
	// close returns a message that is not acknowledged to the server.
	close()
}

// Changes reads the feed: every event of the database in order, without internal ones,
// for ever or up to an Until option. It survives reconnects.
//
// An error is the last value that it yields; it is ctx's error once ctx is done. The
// caller owns the events.
func (c *Client) Changes(ctx context.Context, opts ...FeedOption) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		var f feed
		for _, opt := range opts {
			opt(&f)
		}
		if err := c.read(ctx, &f, func(e *Event) bool { return yield(e, nil) }); err != nil {
			yield(nil, err)
		}
	}
}

// read passes each event to yield until that returns false, the end or an error.
func (c *Client) read(ctx context.Context, f *feed, yield func(*Event) bool) error {
	if f.err != nil {
		return f.err
	}
	return c.messages(ctx, f, func(msg jetstream.Msg, seq uint64) (more bool, err error) {
		e, err := c.decode(msg, seq)
		switch {
		case err != nil:
			return false, err
		case e == nil:
			return true, nil
		case !f.chooses(e):
			return false, ErrBadRequest.With("the feed received event %d, a %s of %s, which its options exclude: was the filter of consumer %q changed? Use one durable name for each choice of events", seq, e.Type, e.Collection, f.durable)
		case e.Time < f.fromTime:
			return true, nil
		case f.untilTime != 0 && e.Time > f.untilTime:
			return false, nil
		}
		return yield(e), nil
	})
}

// messages passes each message of a feed with its sequence to visit, until that
// returns false, the end or an error.
func (c *Client) messages(ctx context.Context, f *feed, visit func(jetstream.Msg, uint64) (more bool, err error)) error {
	src, pending, end, err := c.open(ctx, f)
	if err != nil {
		return c.readError(ctx, err)
	}
	if src == nil {
		return nil
	}
	defer src.close()
	for !f.untilNow || pending > 0 {
		msg, err := src.next(ctx)
		if err != nil {
			return c.readError(ctx, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return c.readError(ctx, err)
		}
		seq := meta.Sequence.Stream
		if end != 0 && seq > end {
			return nil
		}
		if more, err := visit(msg, seq); err != nil || !more {
			return err
		}
		if err := src.done(msg); err != nil {
			return c.readError(ctx, err)
		}
		if seq == end {
			return nil
		}
		pending = meta.NumPending
	}
	return nil
}

// open opens a feed. It returns its source, nil if there is nothing to read, the number
// of pending messages, and the last sequence, 0 for no end.
func (c *Client) open(ctx context.Context, f *feed) (src source, pending, end uint64, err error) {
	guarded, release := c.denials.guard(ctx, c.database.LogStream())
	defer release()
	defer func() { err = c.denied(guarded, err) }()
	end = f.untilSeq
	var last uint64
	if f.untilNow || f.durable == "" && f.fromSeq == 0 && f.fromTime == 0 {
		if last, err = c.lastSequence(guarded); err != nil {
			return nil, 0, 0, err
		}
	}
	if f.untilNow {
		if last == 0 {
			return nil, 0, 0, nil
		}
		if end == 0 || end > last {
			end = last
		}
	}
	if f.durable != "" {
		src, pending, err = c.openDurable(guarded, f, last)
	} else {
		src, pending, err = c.openOrdered(ctx, guarded, f, last)
	}
	return src, pending, end, err
}

// decode returns the event in a message of the log, nil for an internal one.
func (c *Client) decode(msg jetstream.Msg, seq uint64) (*Event, error) {
	collection, eventType, ok := schema.SplitEventSubject(msg.Subject())
	if collection == "_" {
		return nil, nil
	}
	var e *Event
	err := fmt.Errorf("event %d: unexpected subject %q", seq, msg.Subject())
	if ok {
		e, err = schema.DecodeEvent(seq, collection, eventType, msg.Headers().Get, msg.Data())
	}
	if err != nil {
		return nil, &failure{coded: ErrUnavailable.With("the log of database %q cannot be read: %v: is the client older than the server?", c.database, err), cause: err}
	}
	return e, nil
}

// readError returns the context's error if it is done: everything else fails then, too.
func (c *Client) readError(ctx context.Context, err error) error {
	if done := ctx.Err(); done != nil {
		return done
	}
	return c.feedError(err)
}

// lastSequence returns the sequence of the last event of the log, 0 for none.
func (c *Client) lastSequence(ctx context.Context) (uint64, error) {
	return c.sequenceBefore(ctx, jetstream.DeliverNewPolicy)
}

// sequenceBefore returns the sequence before the first that a consumer with this policy
// would deliver. Clients lack the permission to read the stream's state, but the
// info of a consumer contains it.
func (c *Client) sequenceBefore(ctx context.Context, policy jetstream.DeliverPolicy) (uint64, error) {
	consumer, err := c.js.CreateConsumer(ctx, c.database.LogStream(), jetstream.ConsumerConfig{
		Name:              schema.ReaderConsumer + nuid.Next(),
		DeliverPolicy:     policy,
		FilterSubject:     c.database.Events() + ">",
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: time.Second,
		MemoryStorage:     true,
		Replicas:          1,
	})
	if err != nil {
		return 0, err
	}
	return consumer.CachedInfo().Delivered.Stream, nil
}
