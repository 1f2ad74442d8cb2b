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

// source is where messages of the log come from.
type source interface {
	// next waits for a message. It fails with ctx's error when ctx is done.
	next(ctx context.Context) (jetstream.Msg, error)
	// done says that the message that next returned last is dealt with.
	done(msg jetstream.Msg) error
	// close gives back what was not dealt with.
	close()
}

// Changes reads the feed: every event of the database, in order, for ever or up
// to where an Until option says. It survives reconnects; internal events are
// left out.
//
// An error is always the last thing it yields. When ctx is done that is ctx's
// error. The events are the caller's.
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

// read gives each event to yield until that returns false, the end or an error.
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
			return false, ErrBadRequest.With("the feed got event %d, a %s of %s, which it did not ask for: was the filter of consumer %q changed? Give every choice of events a durable name of its own", seq, e.Type, e.Collection, f.durable)
		case e.Time < f.fromTime:
			return true, nil
		case f.untilTime != 0 && e.Time > f.untilTime:
			return false, nil
		}
		return yield(e), nil
	})
}

// messages gives each message of a feed to visit, with its sequence, until that
// wants no more, the end or an error.
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

// open begins a feed: its source, how many messages wait in it, and the
// sequence with which it ends, 0 if none. There is no source if there is
// nothing to read.
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

// readError prefers the context's own error: when it is done everything else
// fails too.
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

// sequenceBefore returns the sequence before the first that a consumer with
// this policy would deliver. A client may not ask how far the log goes, but a
// consumer says where it would begin.
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
