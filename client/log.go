package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// Entry is a message of the log.
type Entry struct {
	Seq   uint64
	Event *Event // nil if the message is no event
	Fault error  // why it is none
}

// Log reads every message of the log up to its present end, for audits: unlike Changes it
// includes internal events and messages that are no events.
//
// An error is the last value that it yields; it is ctx's error once ctx is done. The
// caller owns the entries.
func (c *Client) Log(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		err := c.messages(ctx, &feed{fromSeq: 1, untilNow: true}, func(msg jetstream.Msg, seq uint64) (bool, error) {
			return yield(entryOf(msg, seq), nil), nil
		})
		if err != nil {
			yield(Entry{}, err)
		}
	}
}

func entryOf(msg jetstream.Msg, seq uint64) Entry {
	entry := Entry{Seq: seq}
	if collection, eventType, ok := schema.SplitEventSubject(msg.Subject()); ok {
		entry.Event, entry.Fault = schema.DecodeEvent(seq, collection, eventType, msg.Headers().Get, msg.Data())
	} else {
		entry.Fault = fmt.Errorf("event %d: unexpected subject %q", seq, msg.Subject())
	}
	return entry
}

// LogBounds returns the sequences of the first and the last message of the log; the
// first is above the last if the log is empty.
func (c *Client) LogBounds(ctx context.Context) (first, last uint64, err error) {
	guarded, release := c.denials.guard(ctx, c.database.LogStream())
	defer release()
	before, err := c.sequenceBefore(guarded, jetstream.DeliverAllPolicy)
	if err == nil {
		last, err = c.lastSequence(guarded)
	}
	if err != nil {
		return 0, 0, c.readError(ctx, c.denied(guarded, err))
	}
	return before + 1, last, nil
}
