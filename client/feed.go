package client

import (
	"slices"
	"time"

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
// a time. They have to choose the same events: a loop that chooses others than
// those before it fails with ErrBadRequest.
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

// chooses reports whether the options choose an event.
func (f *feed) chooses(e *Event) bool {
	return (len(f.types) == 0 || slices.Contains(f.types, e.Type)) &&
		(len(f.collections) == 0 || slices.Contains(f.collections, string(e.Collection)))
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
