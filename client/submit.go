package client

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// Submit hands a change over without waiting for its outcome, also while
// nobody serves the database: when Submit returns, it will be judged, once, in
// the order of submission. op is one of "document.upsert", "collection.create"
// and so on, as in Do.
//
// The sequence it returns is the Cause of the event that results, which is a
// MutationRejected if the change is refused. Of two that come within a tenth of a
// second under one MsgID JetStream keeps the first, whatever the second is, and
// both get its sequence.
func (c *Client) Submit(ctx context.Context, op, collection, id string, value any, opts ...RequestOption) (uint64, error) {
	if schema.ParseOp(op) == schema.NoOp {
		return 0, ErrBadRequest.With("%q changes nothing: use document.create, replace, upsert, patch or delete, or collection.create, replace or delete", op)
	}
	tail, err := subjectTail(op, collection, id)
	if err != nil {
		return 0, err
	}
	msg := nats.NewMsg(c.database.Mutations() + tail)
	if value != nil {
		if msg.Data, err = encode(value); err != nil {
			return 0, err
		}
	}
	for _, opt := range opts {
		opt(headers{msg.Header})
	}
	ack, err := c.js.PublishMsg(ctx, msg)
	if err != nil {
		return 0, c.feedError(err)
	}
	return ack.Sequence, nil
}
