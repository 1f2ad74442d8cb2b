package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// A feed is a source of messages, ordered or durable, and a loop over it. The loop decodes,
// checks that an event is one that the feed chooses, and ends it. Acknowledging is the
// loop's part: after the body has returned and the loop goes on, never before, so an event
// whose body panics or is cut short comes again.

// delivery is a message of the log. data belongs to it, and to the event made of it.
type delivery struct {
	subject string
	headers nats.Header
	data    []byte

	seq    uint64
	number uint64 // of the delivery, counted by the consumer
	times  uint64 // deliveries of this message, this one included
	pin    string // ID of the pin with which a durable's consumer delivered it

	acks jetstream.Msg // nil for a message that was pushed
}

func deliveryOf(msg jetstream.Msg) (delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return delivery{}, err
	}
	return delivery{
		subject: msg.Subject(), headers: msg.Headers(), data: msg.Data(),
		seq: meta.Sequence.Stream, number: meta.Sequence.Consumer, times: meta.NumDelivered, pin: msg.Headers().Get("Nats-Pin-Id"), acks: msg,
	}, nil
}

// source delivers messages of the log.
type source interface {
	// next waits for a message. It fails with ctx's error when ctx is done, and with io.EOF
	// when it knows that the feed has no more messages before its end.
	next(ctx context.Context) (delivery, error)
	// done acknowledges a message. It is safe for concurrent use.
	done(delivery) error
	// close returns all unacknowledged messages to the server.
	close()
}

// Changes reads the feed: every event of the database in order, without internal ones,
// for ever or up to an Until option. It survives reconnects.
//
// An event that this client cannot read is yielded as a *DecodeError: if the loop goes on,
// it is passed over; if the loop ends, a Durable still has it. Any other error is the
// last value that it yields; it is ctx's error once ctx is done. The caller owns the
// events.
func (c *Client) Changes(ctx context.Context, opts ...FeedOption) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		var f feed
		for _, opt := range opts {
			opt(&f)
		}
		src, end, err := c.open(ctx, &f)
		if err == nil && src != nil {
			defer src.close()
			err = c.read(ctx, &f, src, end, func(d delivery, e *Event, fault error) (bool, error) {
				if !c.handled(ctx, e, fault, yield) {
					return false, nil
				}
				return true, src.done(d)
			})
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// read passes each event of a feed, or why it cannot be read, to visit, which acknowledges
// it. It ends when visit returns false, at the feed's end, or on an error.
func (c *Client) read(ctx context.Context, f *feed, src source, end uint64, visit func(d delivery, e *Event, fault error) (more bool, err error)) error {
	return c.messages(ctx, src, end, func(d delivery) (more bool, err error) {
		e, err := decodeEvent(d)
		switch {
		case err != nil:
			return visit(d, nil, err)
		case e == nil:
			return true, src.done(d)
		case !f.chooses(e):
			return false, ErrBadRequest.With("the feed received event %d, a %s of %s, which its options exclude: was the filter of consumer %q changed? Use one durable name for each choice of events", e.Seq, e.Type, e.Collection, f.durable)
		case f.fromTime != nil && e.Time < *f.fromTime:
			return true, src.done(d)
		case f.untilTime != nil && e.Time > *f.untilTime:
			return false, nil
		}
		return visit(d, EventOf(e), nil)
	})
}

// messages passes each message of a source to visit, until visit returns false, the end
// or an error.
func (c *Client) messages(ctx context.Context, src source, end uint64, visit func(delivery) (more bool, err error)) error {
	for {
		d, err := src.next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return c.readError(ctx, err)
		}
		if end != 0 && d.seq > end {
			return nil
		}
		if more, err := visit(d); err != nil {
			return c.readError(ctx, err)
		} else if !more || d.seq == end {
			return nil
		}
	}
}

// open opens a feed. It returns its source, nil if the feed is empty, and its last
// sequence, 0 for no end.
func (c *Client) open(ctx context.Context, f *feed) (src source, end uint64, err error) {
	if f.err != nil {
		return nil, 0, f.err
	}
	guarded, release := c.denials.guard(ctx, c.database.LogStream())
	defer release()
	if src, end, err = c.openSource(ctx, guarded, f); err != nil {
		return nil, 0, c.readError(ctx, c.denied(guarded, err, c.noLog()))
	}
	return src, end, nil
}

func (c *Client) openSource(ctx, opening context.Context, f *feed) (src source, end uint64, err error) {
	if f.untilSeq != nil && *f.untilSeq == 0 {
		return nil, 0, nil
	}
	if f.durable != "" {
		if end, err = c.end(opening, f); err == nil {
			src, err = c.openDurable(ctx, opening, f, end)
		}
		return src, end, err
	}
	begin, err := c.begin(opening, f)
	if err == nil {
		end, err = c.end(opening, f)
	}
	if err != nil || f.untilNow && begin > end {
		return nil, 0, err
	}
	src, err = c.openOrdered(ctx, opening, f.consumer(c.database, begin), f.resets())
	if f.untilNow && err == nil {
		src = &whole{source: src, client: c, reached: begin - 1, end: end}
	}
	return src, end, err
}

// ReadEvent returns the event in a message that a consumer of the program's own has from
// the log, for work that several processes share. It is nil for an internal message, and
// the error is a *DecodeError for one that this client cannot read. The event keeps the
// message's data.
func ReadEvent(m jetstream.Msg) (*Event, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, DecodeError{Body: m.Data()}.because(err)
	}
	e, err := decodeEvent(delivery{subject: m.Subject(), seq: meta.Sequence.Stream, headers: m.Headers(), data: m.Data()})
	if e == nil {
		return nil, err
	}
	return EventOf(e), nil
}

// decodeEvent returns the event in a message of the log, nil for an internal one.
func decodeEvent(d delivery) (*schema.Event, error) {
	collection, eventType, ok := schema.SplitEventSubject(d.subject)
	if collection == "_" {
		return nil, nil
	}
	var e *schema.Event
	err := fmt.Errorf("event %d: unexpected subject %q", d.seq, d.subject)
	if ok {
		e, err = schema.DecodeEvent(d.seq, collection, eventType, d.headers.Get, d.data)
	}
	if err != nil {
		return nil, DecodeError{Collection: collection, Seq: d.seq, Body: d.data}.because(fmt.Errorf("the log cannot be read: %v: is the client older than the server?", err))
	}
	return e, nil
}

// readError returns ctx's error if ctx is done, since it is the cause of any other error.
func (c *Client) readError(ctx context.Context, err error) error {
	if done := ctx.Err(); done != nil {
		return done
	}
	if missing := c.unimported(ctx, err); missing != nil {
		return missing
	}
	return c.feedError(err)
}
