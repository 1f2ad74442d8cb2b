package client

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// Single look-ups in the log, without a consumer: all clients share a limited number of
// those.

// NextEvent returns the first event of a collection whose sequence is seq or higher, nil if
// there is none yet. It makes no consumer: each call is one request. For many events use
// Changes.
func (c *Client) NextEvent(ctx context.Context, collection string, seq uint64) (*Event, error) {
	name, err := schema.ParseCollectionName(collection)
	if err != nil {
		return nil, err
	}
	guarded, release := c.denials.guard(ctx, c.database.LogStream())
	defer release()
	m, err := c.log().Next(guarded, max(seq, 1), c.database.Events()+string(name)+".>")
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, c.readError(ctx, c.denied(guarded, err, c.noLog()))
	}
	e, err := decodeEvent(delivery{subject: m.Subject, headers: m.Header, data: m.Data, seq: m.Sequence})
	if err != nil {
		return nil, err
	}
	return EventOf(e), nil
}

// SeqSince returns the sequence of the first event whose log time is t or later, or the next
// sequence if there is none yet.
func (c *Client) SeqSince(ctx context.Context, t time.Time) (uint64, error) {
	guarded, release := c.denials.guard(ctx, c.database.LogStream())
	defer release()
	var f feed
	FromTime(t)(&f)
	seq, err := c.begin(guarded, &f)
	if err != nil {
		return 0, c.readError(ctx, c.denied(guarded, err, c.noLog()))
	}
	return seq, nil
}
