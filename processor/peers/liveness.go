package peers

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Liveness decides, for every read, whether a document has expired, or was renewed by
// a write that the projection has not folded. The projection lags behind the writer's
// decisions, so a document whose deadline has passed in it may have a later one. No
// read may miss a live document, or find an expired one.
//
// One rule: a read that judges deadlines by second T is right if every renewal decided
// before T is folded in the state that it reads. A read that cannot prove that is
// *Unsettled: it waits until it can and runs again, or gets a 504. A version whose
// deadline has not passed needs no proof: no client has a reply to a write still in
// flight. How a process proves the rule depends on its role.
//
// The only writer (OnlyWriter) knows every renewal in flight, from writer.Renewals. The
// writer holds its lock from before it reads the clock until the renewal is in the
// table. So a reader whose clock has reached a deadline, and who finds no renewal,
// missed none. A read waits for the renewal of the one document that it is about, or
// for those of its collection whose old deadline has passed. It asks OnlyWriter after the
// clock: if the process was frozen between them, its lease has expired. One that is frozen
// later replies with what was right then.
//
// A standby does not know them. But log time does not go back: once it has folded an
// event at second S, it has folded every renewal decided before S, and its state is
// settled up to S. As a rule the DocumentExpired follows its deadline by milliseconds
// and settles it. If no event arrives within expiryGrace, the standby asks the writer.
// The writer names its sequence and the second before the earliest deadline in its
// table, at most its own second (vouch). Once the standby has folded that sequence, it
// is settled up to that second. The end of the log would prove nothing: a renewal may be
// on its way there. But if no writer answers for ownGrace, the standby relies on it, and
// may miss a renewal of a dead writer that the log accepts later. A former writer whose
// lease has expired is a standby in this sense, whatever its table still holds.
//
// A point read compares the version again after the proof: a renewal may have been
// folded between the read and the proof. A query reads for longer. The writer keeps
// folded renewals for the time limit of a query; a standby notes, before the query, up
// to which second it is settled (horizon). A query that may have missed one runs again,
// only once, by a settled second: otherwise it could miss another for ever.
type Liveness struct {
	Config
	askWriter func(context.Context) (Settlement, error) // Peers.askWriter

	settled atomic.Int64 // unix second up to which the writer, or the log's end, settled the state
	asks    singleflight[struct{}, bool]
	counts  singleflight[uint64, Tally]
}

// Now returns the unix second by which reads judge deadlines: that of the clock, but
// not before log time.
func (l *Liveness) Now() int64 { return l.Clock.Second(l.Store.Cursor().Time) }

// Unsettled is the error of a read that depends on a renewal that may not be folded.
type Unsettled struct {
	name schema.CollectionName
	key  machine.DocumentKey // without an id: of the whole collection
	now  int64               // wait for all renewals whose old deadline has passed at this second; 0: for that of key
}

func (e *Unsettled) Error() string { return "a renewal is in flight" }

// Wait waits until a read that returned e may be tried again. The error is that of ctx.
func (l *Liveness) Wait(ctx context.Context, e *Unsettled) error {
	switch {
	case e.now == 0:
		return l.Renewals.Wait(ctx, e.key)
	case l.OnlyWriter():
		return l.Renewals.Settle(ctx, e.key.Incarnation, e.now)
	}
	return l.settle(ctx, e.now)
}

// Timeout returns the reply to a read that waited too long.
func (e *Unsettled) Timeout() *schema.Error {
	of := fmt.Sprintf("document %q", string(e.key.ID))
	if e.key.ID == "" {
		of = fmt.Sprintf("collection %s", e.name)
	}
	return schema.ErrTimeout.With("the last change of %s was not acknowledged by the log within %s: try again", of, answer.MinSeqTimeout)
}

// unsettledCollection returns the error of a read about a whole collection; now is as in
// Unsettled.
func unsettledCollection(c *schema.Collection, now int64) *Unsettled {
	return &Unsettled{c.Name, writer.OfCollection(c.Incarnation), now}
}

// Expired returns nil if a document, whose deadline has passed in the record read, has
// expired; an *Unsettled error if it was, or may have been, renewed before. A record
// without a version belongs to no document and needs no proof.
func (l *Liveness) Expired(c *schema.Collection, id schema.DocumentID, record projections.Record) error {
	if record.Version == 0 {
		return nil
	}
	key := machine.DocumentKey{Incarnation: c.Incarnation, ID: id}
	of, inFlight := l.Renewals.Find(key) // before OnlyWriter: a former writer clears the table
	switch {
	case !l.OnlyWriter():
		if at := record.Deadline(c).At; at > l.settledUpTo() {
			return &Unsettled{c.Name, key, at}
		}
	case inFlight:
		return &Unsettled{c.Name, of, 0}
	}
	// A renewal may have been folded since the record was read.
	latest, ok := l.Store.Collection(c.Name)
	if ok && latest.Incarnation == c.Incarnation && latest.Version != c.Version {
		return unsettledCollection(c, 0)
	}
	meta, _, err := l.Store.Meta(c, id)
	if err == nil && meta.Version != 0 && (meta.Version != record.Version || meta.Held && !record.Held) {
		err = &Unsettled{c.Name, key, 0}
	}
	return err
}

// complete returns an *Unsettled error if a state of a collection at sequence seq,
// judged by second now, may lack a renewal.
func (l *Liveness) complete(c *schema.Collection, seq uint64, now int64) error {
	missed, err := l.Renewals.Missed(c.Incarnation, seq, now), error(nil) // before OnlyWriter, as in Expired
	if !l.OnlyWriter() {
		missed, err = l.unsettledDue(c, now)
	}
	if missed {
		err = unsettledCollection(c, now)
	}
	return err
}

// Tally is the counts of a collection.
type Tally struct {
	projections.Counts
	Unsettled error // an *Unsettled if they may lack a renewal
}

// Count counts the documents of a collection. It walks all overdue ones, which may be
// a million for some seconds, so concurrent callers share one count.
func (l *Liveness) Count(ctx context.Context, c *schema.Collection) (Tally, error) {
	return l.counts.do(ctx, c.Incarnation, func() (Tally, error) {
		before, now := l.horizon(), l.Now()
		incomplete := l.complete(c, l.Store.Cursor().Seq, now)
		// Use the collection as it is now: some callers may have seen that version.
		if latest, ok := l.Store.Collection(c.Name); ok && latest.Incarnation == c.Incarnation {
			c = latest
		}
		n, err := l.Store.Count(c, now)
		if incomplete == nil && !l.OnlyWriter() && before.missed(l.Store.Cursor().Seq, now) {
			incomplete = unsettledCollection(c, now)
		}
		return Tally{n, incomplete}, err
	})
}

// Attempt is the state that the runs of one query share.
type Attempt struct {
	again   bool  // it ran again because it had missed a renewal
	settled int64 // unix second up to which it waited for the state to settle, 0 if it did not
}

// Begin returns the second by which a query over a collection judges deadlines, and
// confirm. confirm returns an *Unsettled error if the query, which read the state at
// sequence seq, has to run again.
func (l *Liveness) Begin(name schema.CollectionName, a *Attempt) (second answer.SecondFunc, confirm func(seq uint64) error, err error) {
	if l.OnlyWriter() {
		return l.Clock.Second, func(seq uint64) error { return l.confirmWriter(name, seq, a) }, nil
	}
	before := l.horizon()
	now, err := l.standbySecond(name, a)
	if err != nil {
		return nil, nil, err
	}
	// The state's own log time is always settled.
	second = func(logTime int64) int64 { return max(now, logTime/1000) }
	return second, func(seq uint64) error {
		if a.settled == 0 && before.missed(seq, now) {
			return a.settleBefore(name, now)
		}
		return nil
	}, nil
}

// confirmWriter is the confirm of a query that began at the only writer. It makes the
// query run again once for a folded renewal, and once if another process can write
// now.
func (l *Liveness) confirmWriter(name schema.CollectionName, seq uint64, a *Attempt) error {
	c, ok := l.Store.Collection(name)
	switch {
	case !ok:
		return nil
	case !l.OnlyWriter() && a.settled == 0:
		return a.settleBefore(name, l.Now())
	case !l.OnlyWriter():
		return nil
	}
	read := seq
	if a.again {
		seq = max(seq, l.Store.Cursor().Seq) // only renewals in flight
	}
	err := l.complete(c, seq, l.Now())
	if err == nil && uint64(c.Version) > read && !a.again {
		err = unsettledCollection(c, 0) // the new policy may have renewed documents
	}
	a.again = a.again || err != nil
	return err
}

// standbySecond returns the second by which a query of a standby judges deadlines: now,
// or an *Unsettled error. After the wait it returns the second it waited to settle.
func (l *Liveness) standbySecond(name schema.CollectionName, a *Attempt) (now int64, err error) {
	now = l.Now()
	if a.settled != 0 {
		return min(now, max(a.settled, l.settledUpTo())), nil
	}
	c, ok := l.Store.Collection(name)
	if !ok {
		return now, nil
	}
	if err = l.complete(c, 0, now); err != nil {
		a.settled = now
	}
	return now, err
}

// settleBefore returns the *Unsettled error after which the query runs once more, at
// a settled second.
func (a *Attempt) settleBefore(name schema.CollectionName, now int64) error {
	a.settled = now
	return &Unsettled{name, machine.DocumentKey{}, now}
}

// settledUpTo returns the unix second up to which every renewal is folded.
func (l *Liveness) settledUpTo() int64 {
	return max(l.settled.Load(), l.Store.Cursor().Time/1000)
}

// horizon is the sequence and second up to which a standby was settled before it read.
type horizon struct {
	seq     uint64
	settled int64
}

func (l *Liveness) horizon() horizon {
	return horizon{l.Store.Cursor().Seq, l.settledUpTo()} // in this order: settled holds at seq or later
}

// missed reports whether a read of the state at sequence seq, judged by second now, may
// treat as expired a document that was due and was renewed in events folded after the
// horizon.
func (h horizon) missed(seq uint64, now int64) bool { return h.settled < now && h.seq != seq }

// Waits of a standby.
const (
	expiryGrace = 250 * time.Millisecond // for an event to settle a second, before it asks the writer
	ownGrace    = 4 * expiryGrace        // for a writer to answer, before it relies on the end of the log
)

// settle waits until the state is settled up to a second that the clock has reached.
// The error is that of ctx or of the log.
func (l *Liveness) settle(ctx context.Context, second int64) error {
	for heard := time.Now(); l.settledUpTo() < second; {
		grace, cancel := context.WithTimeout(ctx, expiryGrace)
		for l.settledUpTo() < second && grace.Err() == nil {
			_ = l.Store.Wait(grace, l.Store.Cursor().Seq+1)
		}
		cancel()
		if l.settledUpTo() >= second {
			return nil
		}
		// Callers share one request: each run begins after its callers asked.
		answered, err := l.asks.do(ctx, struct{}{}, func() (bool, error) { return l.ask(ctx, heard.Add(ownGrace)) })
		if err != nil {
			return err
		}
		if answered {
			heard = time.Now()
		}
	}
	return nil
}

// ask settles the state as far as the writer vouches, and reports whether it answered.
// If it does not, and the time fallback has come, the end of the log settles the state up
// to now. The error is that of ctx or of the log.
func (l *Liveness) ask(ctx context.Context, fallback time.Time) (answered bool, err error) {
	state := Settlement{Second: l.Now()}
	vouched, err := l.askWriter(ctx)
	switch answered = err == nil; {
	case answered:
		state = vouched
	case time.Now().Before(fallback):
		return false, ctx.Err()
	default:
		if state.Seq, err = l.Log.Last(ctx); err != nil {
			return false, err
		}
	}
	if err := l.Store.Wait(ctx, state.Seq); err != nil {
		return answered, err
	}
	l.settled.Store(max(l.settled.Load(), state.Second)) // one run of ask at a time
	return answered, nil
}

// unsettledDue reports whether a collection has documents whose deadline passed
// between the second up to which the state is settled and now.
func (l *Liveness) unsettledDue(c *schema.Collection, now int64) (found bool, err error) {
	settled := l.settledUpTo()
	if settled >= now {
		return false, nil
	}
	for _, order := range []projections.Order{projections.ByDeadline, projections.ByTimestamp} {
		last, ok := projections.LastDue(c, order, now)
		if !ok {
			continue
		}
		after, _ := projections.LastDue(c, order, settled)
		_, _, err := l.Store.Scan(projections.Queue{Incarnation: c.Incarnation, Order: order},
			projections.Entry{Second: max(after+1, 0)}, last, func(projections.Entry) bool { found = true; return false })
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}
