package cosmos

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lapsedb/lapse/client"
)

// Limits of a tail.
const (
	maxTail      = 10_000           // events
	maxTailBytes = 64 << 20         // of events
	eventBytes   = 1 << 10          // of an event in memory, besides its content
	tailIdle     = time.Minute      // after the last request of a change feed
	tailPause    = 10 * time.Second // between two starts
)

// tail has the last events of a log in memory, until it ends: after an error, when nobody asks
// for it, or when the database is closed. A tail that has ended has none. A reader of a
// change feed asks every few seconds, for each container, and a message get costs a round
// trip for each event. The tail reads the log once for all readers of a database.
//
// Who may change what: run alone adds events. Any request may ask, under mu; end may come
// from run or from follow. ended is final.
//
// Invariant: events has all events of the log in [from, last] that are not internal.
// Whatever it cannot promise that for moves from up, and requests for less go to the log.
//
// Why a stale tail does no harm: who asks says up to which sequence it has to reach
// (tailOf, next); if it has not, the log answers.
type tail struct {
	log    time.Time // when the log was created
	began  time.Time // by the machine's clock
	cancel context.CancelFunc
	idle   *time.Timer

	mu     sync.Mutex
	ended  bool
	events []*client.Event
	bytes  int
	from   uint64 // the first sequence from which on it has all events
	last   uint64 // the last sequence it has read

	defined uint64 // the last sequence that may have changed a collection
}

// newTail returns a tail that begins as many events before the end of a log as are likely to
// fit, by their mean size.
func newTail(log client.LogState, cancel context.CancelFunc) *tail {
	events := uint64(maxTail)
	if n := log.Last + 1 - log.First; log.Bytes > 0 {
		events = min(events, maxTailBytes*n/log.Bytes)
	}
	from := max(log.First, log.Last+1-min(events, log.Last))
	return &tail{log: log.Created, began: time.Now(), cancel: cancel, idle: time.AfterFunc(tailIdle, cancel), from: from, last: from - 1, defined: from - 1}
}

// run reads the log until ctx ends or a message may be missing.
func (t *tail) run(ctx context.Context, c *client.Client) {
	defer t.end()
	for entry, err := range c.Follow(ctx, t.last+1) {
		if err != nil || !t.add(entry) {
			return
		}
	}
}

// end ends the tail and frees its events.
func (t *tail) end() {
	t.cancel()
	t.idle.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended, t.events = true, nil
}

// add adds the next message of the log. It returns false if the tail has ended, and for a
// message of another log.
func (t *tail) add(entry client.Entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || entry.Seq <= t.last {
		return false
	}
	t.last = entry.Seq
	switch {
	case entry.Fault != nil: // a message get has the error for those who read it
		t.drop(len(t.events))
		t.from, t.defined = entry.Seq+1, entry.Seq
	case !entry.Event.Type.Internal():
		if slices.Contains(definitions, entry.Event.Type) {
			t.defined = entry.Seq
		}
		t.events = append(t.events, entry.Event)
		t.bytes += sizeOf(entry.Event)
		for len(t.events) > maxTail || t.bytes > maxTailBytes {
			t.drop(1)
		}
	}
	return true
}

// drop drops the first n events. from moves past the dropped ones, since the tail no
// longer has all before.
func (t *tail) drop(n int) {
	for i, e := range t.events[:n] {
		t.bytes -= sizeOf(e)
		t.from = e.Seq + 1
		t.events[i] = nil // for the garbage collector
	}
	t.events = t.events[n:]
}

// sizeOf returns about the bytes of an event in memory.
func sizeOf(e *client.Event) int { return len(e.Body) + eventBytes }

// next returns the first event of a collection from sequence seq on, nil if there is none up to
// end. ok is false if the tail doesn't know.
func (t *tail) next(collection string, seq, end uint64) (e *client.Event, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || seq < t.from {
		return nil, false
	}
	i, _ := slices.BinarySearchFunc(t.events, seq, func(e *client.Event, seq uint64) int { return cmp.Compare(e.Seq, seq) })
	for _, e := range t.events[i:] {
		if e.Collection == collection {
			return e, true
		}
	}
	return nil, t.last >= end
}

// definitions are the events that change a collection.
var definitions = []client.EventType{client.CollectionCreated, client.CollectionReplaced, client.CollectionDeleted}

// unchanged reports whether no collection changed after a sequence; ok is false once the tail
// has ended.
func (t *tail) unchanged(seq uint64) (unchanged, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return seq >= t.defined, !t.ended
}

// use keeps the tail from ending as idle. It returns the sequences from which and up to which
// it has all events; ok is false once it has ended.
func (t *tail) use() (from, last uint64, ok bool) {
	t.idle.Reset(tailIdle)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.from, t.last, !t.ended
}

// tailOf returns the tail with the sequences between which it has all events, if these include
// all after one sequence and up to another; else nil.
func (db *database) tailOf(after, upTo uint64) (t *tail, from, last uint64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.tail == nil {
		return nil, 0, 0
	}
	if from, last, ok := db.tail.use(); ok && from <= after+1 && last >= max(after, upTo) {
		return db.tail, from, last
	}
	return nil, 0, 0
}

// follow returns the tail of a log in the state given. It starts one if there is none; one that
// has ended is replaced after a while, and that of an earlier log at once. The pause keeps
// a log that cannot be followed from being tried at each request.
func (db *database) follow(log client.LogState) *tail {
	db.mu.Lock()
	defer db.mu.Unlock()
	if t := db.tail; t != nil && t.log.Equal(log.Created) {
		if _, _, ok := t.use(); ok || time.Since(t.began) < tailPause {
			return t
		}
	} else if t != nil {
		t.end()
	}
	ctx, cancel := context.WithCancel(db.running)
	t := newTail(log, cancel)
	db.tail = t
	if ctx.Err() == nil {
		db.tails.Go(func() { t.run(ctx, db.client) })
	} else {
		t.end()
	}
	return t
}
