package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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
	return c.entries(ctx, feed{fromSeq: new(uint64(1)), untilNow: true})
}

// Follow reads every message of the log from sequence seq on, for ever, for a copy of its end:
// like Log it includes internal events and messages that are no events.
//
// An error is the last value that it yields. Unlike Changes it does not begin again after one:
// it ends as soon as a message may be missing, as after a reconnect or once the log is deleted.
// The caller owns the entries.
func (c *Client) Follow(ctx context.Context, seq uint64) iter.Seq2[Entry, error] {
	return c.entries(ctx, feed{fromSeq: new(max(seq, 1)), once: true})
}

func (c *Client) entries(ctx context.Context, f feed) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		src, end, err := c.open(ctx, &f)
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

// LogState describes the log.
type LogState struct {
	First, Last uint64    // sequences of the first and the last message; First is above Last if the log is empty
	Bytes       uint64    // of all messages
	Created     time.Time // by the clock of the NATS server; another time is another log
}

// LogState returns the state of the log.
func (c *Client) LogState(ctx context.Context) (LogState, error) {
	guarded, release := c.denials.guard(ctx, c.database.LogStream())
	defer release()
	info, err := c.logInfo(guarded)
	if err != nil {
		return LogState{}, c.readError(ctx, c.denied(guarded, err, c.noLog()))
	}
	return LogState{First: max(info.State.FirstSeq, 1), Last: info.State.LastSeq, Bytes: info.State.Bytes, Created: info.Created}, nil
}

// CountEvents returns how many events of a type the log has, by collection. Those that
// retention has removed are not counted.
func (c *Client) CountEvents(ctx context.Context, t EventType) (map[string]uint64, error) {
	guarded, release := c.denials.guard(ctx, c.database.LogStream())
	defer release()
	var info *jetstream.StreamInfo
	stream, err := c.js.Stream(guarded, c.database.LogStream())
	if err == nil {
		info, err = stream.Info(guarded, jetstream.WithSubjectFilter(c.database.Events()+"*."+t.String()))
	}
	if err != nil {
		return nil, c.readError(ctx, c.denied(guarded, err, c.noLog()))
	}
	counts := make(map[string]uint64)
	for subject, n := range info.State.Subjects {
		if collection, _, ok := schema.SplitEventSubject(subject); ok {
			counts[collection] = n
		}
	}
	return counts, nil
}

// LogBounds returns the sequences of the first and the last message of the log; the
// first is above the last if the log is empty.
func (c *Client) LogBounds(ctx context.Context) (first, last uint64, err error) {
	state, err := c.LogState(ctx)
	return state.First, state.Last, err
}
