package service

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Liveness decides, for everything that is read, whether a document has expired or
// was renewed by a write that is not folded yet. What is read is the projection,
// which is behind what was decided: a document whose deadline has passed there may
// have a later one. Nothing may be told gone that lives, nor found that is gone.
//
// The rule is one: a read that judges deadlines by second T is right if every
// renewal decided before T is folded. Where that is not known the read is
// *unsettled: it waits until it is, and is done again, or refused with a 504.
//
//   - The writer knows each renewal in flight (renewals): it holds their lock from
//     before it reads the clock until what it decided is noted, so a reader who
//     finds none has missed none. A read waits for the one document that it is
//     about, or for those of its collection whose old deadline has passed.
//   - A standby does not. But log time does not go back, so what it has folded
//     tells up to which second it knows all: as a rule the expiry follows its
//     deadline by milliseconds. If nothing comes for a while, nobody may be
//     writing, and where the log ends says that there was no renewal.
//   - A query reads for some time. What was folded meanwhile may be a renewal of
//     what it judged before: it runs again, once, by a second for which all is known.
//
// A processor is the writer in this sense only while no other process can write.
type Liveness struct {
	Store    *projections.Store
	Log      *eventlog.Log
	Clock    *clock.Timekeeper
	Renewals *writer.Renewals
	// Sole reports whether no other process can write: what this one knows is then
	// all there is.
	Sole func() bool

	second atomic.Int64 // up to which it is known which documents have gone
	looks  shared[struct{}, struct{}]
	counts shared[uint64, tally]
}

// Now returns the second by which reads judge deadlines: log time, which does
// not go back, moved on by the clock.
func (l *Liveness) Now() int64 { return l.Clock.Second(l.Store.Cursor().Time) }

// unsettled is the error of a read that depends on a renewal which is not folded, of a
// document or of any in its collection.
type unsettled struct {
	name schema.CollectionName
	key  machine.DocumentKey // without an id: of the collection
	now  int64               // or those of any document of it that had to come before, 0 for none
}

func (e *unsettled) Error() string { return "a renewal is under way" }

// wait returns when the read may be tried again, or with ctx's error.
func (e *unsettled) wait(ctx context.Context, l *Liveness) error {
	if e.now != 0 && !l.Sole() {
		return l.makeCertain(ctx, e.now)
	}
	if e.now != 0 {
		return l.Renewals.Settle(ctx, e.key.Incarnation, e.now)
	}
	return l.Renewals.Wait(ctx, e.key)
}

// late is what those are told who waited too long.
func (e *unsettled) late() *schema.Error {
	what := fmt.Sprintf("document %q", string(e.key.ID))
	if e.key.ID == "" {
		what = fmt.Sprintf("collection %s", e.name)
	}
	return schema.ErrTimeout.With("the log did not take the last change of %s within %s: try again", what, answer.MinSeqTimeout)
}

// Expired returns nil if a document whose deadline has passed in the version read,
// 0 for none, was not renewed before, and an *unsettled if it was, or if
// that is not known.
func (l *Liveness) Expired(c *schema.Collection, id schema.DocumentID, record projections.Record) error {
	version := record.Version
	if version == 0 {
		return nil
	}
	document := machine.DocumentKey{Incarnation: c.Incarnation, ID: id}
	if !l.Sole() {
		if at := record.Deadline(c).At; at > l.certainUpTo() {
			return &unsettled{c.Name, document, at}
		}
	} else if of, ok := l.Renewals.UnderWay(document); ok {
		return &unsettled{c.Name, of, 0}
	}
	// A renewal may have been folded since it was read.
	latest, ok := l.Store.Collection(c.Name)
	if ok && latest.Incarnation == c.Incarnation && latest.Version != c.Version {
		return &unsettled{c.Name, writer.OfCollection(c.Incarnation), 0}
	}
	meta, _, err := l.Store.Meta(c, id)
	if err == nil && meta.Version != 0 && meta.Version != version {
		err = &unsettled{c.Name, document, 0}
	}
	return err
}

// complete returns an *unsettled if an answer about a collection, of the
// state at sequence seq and judged at a second, lacks what was renewed before.
func (l *Liveness) complete(c *schema.Collection, seq uint64, now int64) error {
	if !l.Sole() {
		overdue, err := l.overdue(c, now)
		if overdue {
			err = &unsettled{c.Name, writer.OfCollection(c.Incarnation), now}
		}
		return err
	}
	if l.Renewals.Missed(c.Incarnation, seq, now) {
		return &unsettled{c.Name, writer.OfCollection(c.Incarnation), now}
	}
	return nil
}

// tally is the counts of a collection.
type tally struct {
	projections.Counts
	unsettled error // an *unsettled, if they lack what was renewed before
}

// Count counts the documents of a collection. That goes through all that are
// overdue, of which there may be a million for some seconds, so it is done once
// for all who ask meanwhile.
func (l *Liveness) Count(ctx context.Context, c *schema.Collection) (tally, error) {
	return l.counts.do(ctx, c.Incarnation, func() (tally, error) {
		before, now := l.Known(), l.Now()
		incomplete := l.complete(c, l.Store.Cursor().Seq, now)
		// By the collection as it is now: the result is told to those, too, who
		// saw a later one.
		if latest, ok := l.Store.Collection(c.Name); ok && latest.Incarnation == c.Incarnation {
			c = latest
		}
		n, err := l.Store.Count(c, now)
		if incomplete == nil && !l.Sole() && before.Overlooked(l.Store.Cursor().Seq, now) {
			incomplete = &unsettled{c.Name, writer.OfCollection(c.Incarnation), now}
		}
		return tally{n, incomplete}, err
	})
}

// Attempt is what earlier tries of one query have settled.
type Attempt struct {
	again bool  // it missed a renewal before
	sure  int64 // the second for which it waited to know who has gone, 0 for none
}

// Begin returns by which second a query over a collection judges deadlines, and
// confirm, which returns an *unsettled if the query, having read the state at a
// sequence, has to run again.
func (l *Liveness) Begin(name schema.CollectionName, a *Attempt) (second answer.SecondFunc, confirm func(seq uint64) error, err error) {
	if l.Sole() {
		return l.Clock.Second, func(seq uint64) error { return l.confirmWriter(name, seq, a) }, nil
	}
	before := l.Known()
	// As of now, for which it is known who has gone, or as of the state's own time,
	// for which it always is.
	now, err := l.KnownNow(name, a)
	if err != nil {
		return nil, nil, err
	}
	second = func(logTime int64) int64 { return max(now, logTime/1000) }
	return second, func(seq uint64) error {
		if a.sure == 0 && before.Overlooked(seq, now) {
			return a.unsure(name, now)
		}
		return nil
	}, nil
}

// confirmWriter is confirm where nobody else could write when the query began.
// That a renewal was folded while the query ran makes it run again once, no more:
// it might for ever. So does that another process can write now.
func (l *Liveness) confirmWriter(name schema.CollectionName, seq uint64, a *Attempt) error {
	c, ok := l.Store.Collection(name)
	switch {
	case !ok:
		return nil
	case !l.Sole() && a.sure == 0:
		return a.unsure(name, l.Now())
	case !l.Sole():
		return nil
	}
	before := seq
	if a.again {
		seq = max(seq, l.Store.Cursor().Seq)
	}
	err := l.complete(c, seq, l.Now())
	if err == nil && uint64(c.Version) > before && !a.again {
		err = &unsettled{c.Name, writer.OfCollection(c.Incarnation), 0} // it may have been of the policy
	}
	a.again = a.again || err != nil
	return err
}

// KnownNow returns the second by which a standby judges who has gone: now, or an
// *unsettled if that is not known. It waits for that once, no more: the second
// time it is the one for which it did.
func (l *Liveness) KnownNow(name schema.CollectionName, a *Attempt) (now int64, err error) {
	now = l.Now()
	if a.sure != 0 {
		return min(now, max(a.sure, l.certainUpTo())), nil
	}
	c, ok := l.Store.Collection(name)
	if !ok {
		return now, nil
	}
	if err = l.complete(c, 0, now); err != nil {
		a.sure = now
	}
	return now, err
}

// unsure returns an *unsettled, after which the query runs once more, by a second
// for which it is known who has gone.
func (a *Attempt) unsure(name schema.CollectionName, now int64) error {
	a.sure = now
	return &unsettled{name, machine.DocumentKey{}, now}
}

// certainUpTo is the second up to which it is known which documents have gone.
func (l *Liveness) certainUpTo() int64 {
	return max(l.second.Load(), l.Store.Cursor().Time/1000)
}

// expiryGrace is how long a standby waits for an expiry to be folded before it
// asks where the log ends; longer than an append takes.
const expiryGrace = 250 * time.Millisecond

// known is what a standby knew before it read: which documents have gone up to a
// second, by the state at a sequence.
type known struct {
	Seq    uint64
	second int64
}

func (l *Liveness) Known() known {
	return known{l.Store.Cursor().Seq, l.certainUpTo()} // in this order, so that the second holds there or later
}

// Overlooked tells whether what was read, of the state at sequence seq and judged
// at a second, may have documents that look gone, were folded after somebody
// looked whether there are any, and may have been renewed.
func (k known) Overlooked(seq uint64, now int64) bool { return k.second < now && k.Seq != seq }

// makeCertain returns when it is known which documents have gone up to a second
// that has come, or with ctx's error.
func (l *Liveness) makeCertain(ctx context.Context, second int64) error {
	grace, cancel := context.WithTimeout(ctx, expiryGrace)
	defer cancel()
	for l.certainUpTo() < second && grace.Err() == nil {
		_ = l.Store.Wait(grace, l.Store.Cursor().Seq+1)
	}
	if l.certainUpTo() >= second {
		return nil
	}
	second = max(second, l.Now())
	// Once for all who ask: each asks after its second has come.
	if _, err := l.looks.do(ctx, struct{}{}, func() (struct{}, error) { return struct{}{}, l.toTheEnd(ctx) }); err != nil {
		return err
	}
	for before := l.second.Load(); before < second && !l.second.CompareAndSwap(before, second); {
		before = l.second.Load()
	}
	return nil
}

// toTheEnd returns when what the log has now is folded.
func (l *Liveness) toTheEnd(ctx context.Context) error {
	last, err := l.Log.Last(ctx)
	if err != nil {
		return err
	}
	return l.Store.Wait(ctx, last)
}

// overdue tells whether a collection has documents that look gone at now, and of
// which that is not certain.
func (l *Liveness) overdue(c *schema.Collection, now int64) (found bool, err error) {
	certain := l.certainUpTo()
	if certain >= now {
		return false, nil
	}
	for _, order := range []projections.Order{projections.ByDeadline, projections.ByTimestamp} {
		last, ok := projections.LastDue(c, order, now)
		if !ok {
			continue
		}
		after, _ := projections.LastDue(c, order, certain)
		_, _, err := l.Store.Scan(projections.Queue{Incarnation: c.Incarnation, Order: order},
			projections.Entry{Second: max(after+1, 0)}, last, func(projections.Entry) bool { found = true; return false })
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}
