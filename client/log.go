package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/lapsedb/lapse/schema"
)

// Entry is a message of the log.
type Entry struct {
	Seq   uint64
	Event *Event // nil if the message is no event
	Fault error  // why the message is no event
}

// Log reads every message of the log up to its present end, for audits: unlike Changes it
// includes internal events and messages that are no events.
//
// An error is the last value that it yields; it is ctx's error once ctx is done. The
// caller owns the entries.
func (c *Client) Log(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		src, end, err := c.open(ctx, &feed{fromSeq: new(uint64(1)), untilNow: true})
		if err == nil && src != nil {
			defer src.close()
			err = c.messages(ctx, src, end, func(d delivery) (bool, error) {
				return yield(entryOf(d), nil), nil
			})
		}
		if err != nil {
			yield(Entry{}, err)
		}
	}
}

func entryOf(d delivery) Entry {
	collection, eventType, ok := schema.SplitEventSubject(d.subject)
	if !ok {
		return Entry{Seq: d.seq, Fault: fmt.Errorf("event %d: unexpected subject %q", d.seq, d.subject)}
	}
	e, err := schema.DecodeEvent(d.seq, collection, eventType, d.headers.Get, d.data)
	if err != nil {
		return Entry{Seq: d.seq, Fault: err}
	}
	return Entry{Seq: d.seq, Event: EventOf(e)}
}

// LogBounds returns the sequences of the first and the last message of the log; the
// first is above the last if the log is empty.
func (c *Client) LogBounds(ctx context.Context) (first, last uint64, err error) {
	guarded, release := c.denials.guard(ctx, c.database.LogStream())
	defer release()
	state, err := c.logState(guarded)
	if err != nil {
		return 0, 0, c.readError(ctx, c.denied(guarded, err, c.noLog()))
	}
	return max(state.FirstSeq, 1), state.LastSeq, nil
}
