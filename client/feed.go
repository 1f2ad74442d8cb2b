package client

import (
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// feed holds the options of Changes.
type feed struct {
	collections []string
	types       []EventType
	durable     string
	ackWait     time.Duration // 0: not set

	// Of these nil is "not given": sequence 0 is before the first event, and time 0 is 1970.
	fromSeq   *uint64 // at least 1
	fromTime  *int64  // ms
	untilSeq  *uint64
	untilTime *int64 // ms
	untilNow  bool

	once bool // ends where its source would begin again

	err error // of the first invalid option
}

// FeedOption narrows the feed.
type FeedOption func(*feed)

// InCollection chooses the events of a collection; repeat it for more. The default is
// all collections.
func InCollection(name string) FeedOption {
	return func(f *feed) {
		if _, err := schema.ParseCollectionName(name); err != nil && name != string(schema.InvalidCollection) {
			f.fail(err)
		}
		f.collections = append(f.collections, name)
	}
}

// OfType chooses event types; the default is all.
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

// FromStart begins with the first event of the log. Without a From option the feed begins
// with the next event.
func FromStart() FeedOption { return FromSeq(1) }

// FromSeq begins at log sequence seq.
func FromSeq(seq uint64) FeedOption {
	return func(f *feed) { f.fromSeq, f.fromTime = new(max(seq, 1)), nil }
}

// FromTime begins with the first event whose log time is t or later. A new reader finds it by
// STREAM.INFO and STREAM.MSG.GET, whatever clock JetStream goes by.
func FromTime(t time.Time) FeedOption {
	return func(f *feed) { f.fromSeq, f.fromTime = nil, new(max(t.UnixMilli(), 0)) }
}

// UntilNow ends the feed with the last event of the log when the feed begins.
func UntilNow() FeedOption { return func(f *feed) { f.untilNow = true } }

// UntilSeq ends the feed with log sequence seq, and waits for it unless UntilNow is
// given, too. Before sequence 1 there are no events.
func UntilSeq(seq uint64) FeedOption { return func(f *feed) { f.untilSeq = &seq } }

// UntilTime ends the feed before the first event whose log time is after t.
func UntilTime(t time.Time) FeedOption {
	return func(f *feed) { f.untilTime = new(t.UnixMilli()) }
}

// Durable stores the position of the feed on the server, under this name. An event is
// acknowledged when the loop asks for the next one, and redelivered if the body ends by
// break, return or panic. So every event is handled at least once, in order, across
// restarts; its sequence identifies a repeat. After a crash the events that were handled
// last may be redelivered, too.
//
// A From option applies only to the first use of the name. Of several loops with the same
// name, in any number of processes, one reads and the others wait for it to end. They
// have to choose the same events: a loop that chooses others fails with ErrBadRequest.
func Durable(name string) FeedOption {
	return func(f *feed) {
		if name == "" {
			f.fail(ErrBadRequest.With("the durable name is empty: use letters, digits, _ and -"))
		}
		f.durable = name
	}
}

// AckWait sets how long the server waits for a vanished reader of a Durable, after a
// crash or a network failure, before another one gets its events. It is 5 s unless the
// first use of the name set another. A reader that is slow and alive keeps its events.
func AckWait(d time.Duration) FeedOption {
	return func(f *feed) {
		if d < time.Second || d > time.Hour {
			f.fail(ErrBadRequest.With("ack wait %v: use 1s to 1h", d))
		}
		f.ackWait = d
	}
}

func (f *feed) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// chooses reports whether the options choose an event.
func (f *feed) chooses(e *schema.Event) bool {
	return (len(f.types) == 0 || slices.Contains(f.types, e.Type)) &&
		(len(f.collections) == 0 || slices.Contains(f.collections, string(e.Collection)))
}

// consumer returns the configuration of a consumer of the chosen events from sequence begin.
func (f *feed) consumer(db schema.DatabaseName, begin uint64) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{FilterSubjects: f.filters(db), DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: begin}
}

// resets returns how often the consumer of the feed is made again without a message since,
// below 0 for no limit.
func (f *feed) resets() int {
	switch {
	case f.once:
		return 0
	case f.untilNow:
		return maxResets // the caller waits for the end
	}
	return -1
}

// filters returns the subjects of the chosen events.
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
	return slices.Compact(subjects) // JetStream refuses overlapping filters
}
