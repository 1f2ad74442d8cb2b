package client

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// Submit stores a write durably without waiting for its outcome, even while no process
// serves the database. It is decided once, in the order of submission. op is
// "document.upsert", "collection.create" and so on, as in Do.
//
// It returns the sequence that is the Cause of the resulting event, a MutationRejected if
// the write is refused. Of two submissions with one MsgID within a tenth of a second
// JetStream stores only the first, whatever the second is; both get its sequence. After
// ErrTimeout or context.Canceled the write may be stored: submit it again with its MsgID.
func (c *Client) Submit(ctx context.Context, op, collection, id string, value any, opts ...WriteOption) (seq uint64, err error) {
	if schema.ParseOp(op) == schema.NoOp {
		return 0, ErrBadRequest.With("%q is not a write: use document.create, replace, upsert, patch or delete, or collection.create, replace or delete", op)
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
	if msg.Data, err = ApplyWrite(msg.Header, msg.Data, opts...); err != nil {
		return 0, err
	}
	if c.tracer != nil {
		ctx = c.tracer.Call(ctx, Call{Client: c, Operation: op, Collection: collection, DocumentID: id, Submit: true, Header: msg.Header})
		defer func() { c.tracer.End(ctx, err) }()
	}
	if c.nc.IsClosed() {
		return 0, c.transportError(nats.ErrConnectionClosed)
	}
	guarded, release := c.denials.guard(ctx, msg.Subject)
	defer release()
	c.awaitLimits(len(msg.Data))
	ack, err := c.js.PublishMsg(guarded, msg)
	if err != nil {
		return 0, c.feedError(c.lost(c.denied(guarded, err, c.noPermission(msg.Subject)), msg))
	}
	return ack.Sequence, nil
}
