package client

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// feed is what the options of Changes ask for.
type feed struct {
	collections []string
	types       []EventType
	durable     string

	fromSeq   uint64 // 0: from now
	fromTime  int64  // ms, 0: none
	untilSeq  uint64 // 0: none
	untilTime int64  // ms, 0: none
	untilNow  bool

	err error // the first option that is wrong
}

// FeedOption narrows the feed.
type FeedOption func(*feed)

// InCollection chooses a collection; give it again for more. Without it, all.
func InCollection(name string) FeedOption {
	return func(f *feed) {
		if _, err := schema.ParseCollectionName(name); err != nil && name != string(schema.InvalidCollection) {
			f.fail(err)
		}
		f.collections = append(f.collections, name)
	}
}

// OfType chooses event types. Without it, all.
func OfType(types ...EventType) FeedOption {
	return func(f *feed) {
		for _, t := range types {
			if t == schema.NoEvent || t.Internal() {
				f.fail(ErrBadRequest.With("event type %d is not one that clients read", t))
			}
		}
		f.types = append(f.types, types...)
	}
}

// FromStart begins with the first event of the log. Without it or another
// From, the feed begins with what happens from now on.
func FromStart() FeedOption { return FromSeq(1) }

// FromSeq begins with the event at log sequence seq, or the next one that fits.
func FromSeq(seq uint64) FeedOption {
	return func(f *feed) { f.fromSeq, f.fromTime = max(seq, 1), 0 }
}

// FromTime begins with the first event whose log time is t or later.
func FromTime(t time.Time) FeedOption {
	return func(f *feed) { f.fromSeq, f.fromTime = 0, max(t.UnixMilli(), 1) }
}

// UntilNow ends the feed with the last event there is when it begins.
func UntilNow() FeedOption { return func(f *feed) { f.untilNow = true } }

// UntilSeq ends the feed with log sequence seq; unless UntilNow is given too, it
// waits for it.
func UntilSeq(seq uint64) FeedOption { return func(f *feed) { f.untilSeq = seq } }

// UntilTime ends the feed before the first event whose log time is after t.
func UntilTime(t time.Time) FeedOption { return func(f *feed) { f.untilTime = t.UnixMilli() } }

// Durable remembers on the server, under this name, up to where the feed was
// read: an event counts as read when the loop body has gone on to the next one,
// and what a body left by break, return or panic is given again. So every event
// is handled at least once, in order, across restarts; the sequence tells a
// repeat.
//
// Where to begin is asked for only the first time the name is used. Of several
// loops with the same name, in however many processes, one handles an event at
// a time.
func Durable(name string) FeedOption {
	return func(f *feed) {
		if name == "" {
			f.fail(ErrBadRequest.With("the durable name is empty: use letters, digits, _ and -"))
		}
		f.durable = name
	}
}

func (f *feed) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// filters are the subjects that the options choose.
func (f *feed) filters(db schema.DatabaseName) []string {
	if len(f.collections) == 0 && len(f.types) == 0 {
		return []string{db.Events() + ">"}
	}
	collections, types := f.collections, make([]string, 0, len(f.types))
	if len(collections) == 0 {
		collections = []string{"*"}
	}
	for _, t := range f.types {
		types = append(types, t.String())
	}
	if len(types) == 0 {
		types = []string{"*"}
	}
	var subjects []string
	for _, collection := range collections {
		for _, t := range types {
			subjects = append(subjects, db.Events()+collection+"."+t)
		}
	}
	slices.Sort(subjects)
	return slices.Compact(subjects) // JetStream refuses filters that overlap
}

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
	end := f.untilSeq
	var last uint64
	if f.untilNow || f.durable == "" && f.fromSeq == 0 && f.fromTime == 0 {
		var err error
		if last, err = c.lastSequence(ctx); err != nil {
			return c.readError(ctx, err)
		}
	}
	if f.untilNow {
		if last == 0 {
			return nil
		}
		if end == 0 || end > last {
			end = last
		}
	}
	open := c.openOrdered
	if f.durable != "" {
		open = c.openDurable
	}
	src, pending, err := open(ctx, f, last)
	if err != nil {
		return c.readError(ctx, err)
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
		e, err := c.decode(msg, seq)
		switch {
		case err != nil:
			return err
		case e == nil || e.Time < f.fromTime:
		case f.untilTime != 0 && e.Time > f.untilTime:
			return nil
		case !yield(e):
			return nil
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
// A client may not ask for that, but a consumer that is to deliver what is new
// says where it would begin.
func (c *Client) lastSequence(ctx context.Context) (uint64, error) {
	consumer, err := c.js.CreateConsumer(ctx, c.database.LogStream(), jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverNewPolicy,
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
