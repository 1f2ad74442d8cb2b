package processor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// start moves the fence: it folds the log to its end and appends a
// WriterStarted there. After that nothing that an earlier writer, or this one
// before, has still under way can come into the log, since it is fenced by a
// sequence that has passed.
//
// mine are events that this writer appended without learning their fate.
// start returns the sequence up to which they are in the log.
func (w *writer) start(ctx context.Context, mine []projections.Fact) (landed uint64, err error) {
	retry := tryForever(ctx)
	began, away := time.Now(), false
	err = backoff.RetryNotify(func() error {
		if err := w.log.listen(); err != nil {
			return err
		}
		found, err := w.readEnd(ctx, mine)
		landed = max(landed, found)
		if err != nil {
			return err
		}
		return w.moveFence(ctx)
	}, retry, func(err error, wait time.Duration) {
		away = true
		w.options.Monitor.beat(len(mine))
		w.options.Events.LogOutOfReach(Outage{Err: err, Since: began, Again: wait})
		if time.Since(began) > abandonAfter {
			w.refuse(outOfReach)
			w.abandon(outOfReach)
		}
	})
	if err == nil {
		w.log.forgetTrouble()
		w.started = true
		w.options.Events.FenceMoved(FenceMove{Seq: w.store.Cursor().Seq, Took: time.Since(began)})
		if away {
			w.options.Events.LogInReach(Return{After: time.Since(began)})
		}
	}
	return landed, err
}

// readEnd folds what the log has beyond the cursor and returns up to which
// sequence that was mine.
func (w *writer) readEnd(ctx context.Context, mine []projections.Fact) (landed uint64, err error) {
	last, err := w.log.last(ctx)
	if err != nil {
		return 0, err
	}
	if folded := w.store.Cursor().Seq; last < folded {
		if w.shorter.IsZero() {
			w.shorter = time.Now()
		}
		err := lostEnd(w.log.db, last, folded)
		if time.Since(w.shorter) > shorterFor || w.options.Lease == 0 {
			return 0, backoff.Permanent(err)
		}
		return 0, err
	}
	w.shorter = time.Time{}
	var fault error
	var batch []projections.Fact // folded at once, since others read meanwhile
	err = w.log.Read(ctx, w.store.Cursor().Seq+1, last, func(e *schema.Event) error {
		for len(mine) > 0 && mine[0].Seq < e.Seq {
			mine = mine[1:]
		}
		switch {
		case len(mine) > 0 && same(mine[0].Event, e):
			landed = e.Seq
		case w.started && e.Type == schema.WriterStarted && startedBy(e) != w.name:
			fault = backoff.Permanent(errSuperseded)
			return fault
		}
		w.options.Monitor.beat(len(mine))
		if batch = append(batch, projections.Fact{Event: e}); e.More {
			return nil
		}
		defer func() { batch = nil }()
		return w.store.Fold(batch)
	})
	if err == nil && len(batch) > 0 {
		err = w.store.Fold(batch) // of a log that has lost its end
	}
	if errors.Is(err, errHole) || errors.Is(err, errPast) {
		fault = backoff.Permanent(err)
	}
	return landed, errors.Join(fault, err)
}

// same tells whether an event read from the log is the one that was appended.
func same(a, b *schema.Event) bool {
	return a.Seq == b.Seq && a.Time == b.Time && a.Type == b.Type && a.ID == b.ID &&
		a.Previous == b.Previous && a.Cause == b.Cause && bytes.Equal(a.Body, b.Body)
}

// moveFence appends a WriterStarted at the cursor, which is the log's end or
// the append fails, or behind the hole there.
func (w *writer) moveFence(ctx context.Context) error {
	cursor := w.store.Cursor()
	says, seq := started{Writer: w.name}, cursor.Seq+1
	if end := w.log.end; end.last >= seq {
		says.Lost, seq = end.first, end.last+1
	}
	if w.log.lost.last >= seq {
		says.Reused = w.log.lost.last
	}
	body, err := json.Marshal(says)
	if err != nil {
		return err
	}
	now, fault := w.clock.check()
	if fault != nil {
		now = 0 // the fence moves and time does not
	}
	e := &schema.Event{Seq: seq, Time: max(cursor.Time, now), Type: schema.WriterStarted,
		Collection: schema.InternalCollection, Body: body}
	if err := w.log.Append([]projections.Fact{{Event: e}}, false); err != nil {
		return err
	}
	timeout := time.NewTimer(w.ackTimeout())
	defer timeout.Stop()
	select {
	case a := <-w.log.acks:
		if a.err != nil {
			return a.err
		}
		if err := w.store.Fold([]projections.Fact{{Event: e}}); err != nil {
			return err
		}
		w.log.note(w.store.Cursor())
		w.log.lost = hole{}
		return nil
	case <-timeout.C:
		return fmt.Errorf("append %d: no acknowledgement within %s", e.Seq, w.ackTimeout())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// recover finds out, after an append that failed or was not acknowledged, what
// the log has of what is pending. That is told; the rest is decided again.
func (w *writer) recover(ctx context.Context, cause error) error {
	began := time.Now()
	w.options.Events.AppendFailed(AppendFailure{Err: cause})
	mine := w.machine.pending[:w.machine.taken]
	landed, err := w.start(ctx, mine)
	if err != nil && !errors.Is(err, errSuperseded) {
		return err
	}
	again := w.settle(landed)
	w.retry = append(again, w.retry...)
	if err != nil {
		return err
	}
	w.options.Events.AppendRecovered(AppendRecovery{Landed: landed, Decided: len(again), Took: time.Since(began)})
	w.groups, w.unsent = nil, nil
	w.recoveries++
	w.renewals.clear()
	w.pause(ctx)
	err = w.machine.Abort()
	w.looked = w.machine.Time() // of the WriterStarted, which says that it goes on
	return err
}

// pause waits, and longer each time, when the log takes the fence again and
// again and nothing else: trying at full speed would only fill it.
func (w *writer) pause(ctx context.Context) {
	if w.recoveries <= maxRecoveries {
		return
	}
	wait := min(resumeInterval<<min(w.recoveries-maxRecoveries, 10), maxPause)
	w.options.Events.LogRefuses(Refusal{Times: w.recoveries, Again: wait})
	w.refuse(outOfReach)
	w.abandon(outOfReach)
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}

// settle answers what was decided and is in the log, which ends for this
// writer at sequence landed, and returns what is to be decided again.
func (w *writer) settle(landed uint64) (again []*wish) {
	for _, d := range w.waiting {
		switch {
		case d.outcome.Seq <= landed:
			w.options.Monitor.told(&d)
			d.answer(d.outcome)
		case d.batch != nil && d.first <= landed:
			fault := schema.ErrTimeout.With("the log was lost in the middle of the batch: some operations were done, get the documents to see which")
			d.answer(Outcome{Code: fault.Code, Fault: fault})
		default:
			again = append(again, d.wish)
		}
	}
	clear(w.waiting)
	w.waiting, w.untold = w.waiting[:0], 0
	return again
}

// abandon answers the requests that were decided and may or may not be in the
// log, rather than let them wait until it is back. They are not decided again.
// Those that wait to be decided are told fault.
func (w *writer) abandon(fault *schema.Error) {
	unsure := schema.ErrTimeout.With("the log did not say in time whether it has this: it may be done or not, look and try again")
	w.waiting = slices.DeleteFunc(w.waiting, func(d decided) bool {
		d.answer(Outcome{Code: unsure.Code, Fault: unsure})
		if d.done != nil {
			w.untold -= len(d.outcome.Body)
		}
		return d.done != nil
	})
	w.refuseRetries(fault)
}

// refuseRetries answers the requests that wait to be decided, and returns how
// many there were.
func (w *writer) refuseRetries(fault *schema.Error) int {
	before := len(w.retry)
	w.retry = slices.DeleteFunc(w.retry, func(one *wish) bool {
		one.answer(Outcome{Code: fault.Code, Fault: fault})
		return one.done != nil
	})
	return before - len(w.retry)
}

// outOfReach is what mutations are told that nobody can decide now.
var outOfReach = schema.ErrUnavailable.With("the log is out of reach: try again")

// refuse answers every request that is queued while nothing can be decided, and
// returns how many there were.
func (w *writer) refuse(fault *schema.Error) (refused int) {
	for {
		select {
		case one := <-w.wishes:
			one.answer(Outcome{Code: fault.Code, Fault: fault})
			refused++
		default:
			return refused
		}
	}
}
