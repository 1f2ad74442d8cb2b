package writer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// ErrSuperseded: another process has moved the fence and is the writer now.
var ErrSuperseded = errors.New("another lapse has taken over this database: stop one of the two, a database has one writer")

// fence moves the fence: it folds the log to its end and appends a WriterStarted
// there. Every append names the sequence it expects to follow, so none that is still
// in flight, of an earlier writer or of this one, can succeed after that.
//
// mine are events that this writer appended without an acknowledgement; acked is the
// sequence up to which the log has them.
func (t *Term) fence(ctx context.Context, mine []projections.Fact) (acked uint64, err error) {
	retry := eventlog.TryForever(ctx)
	began, away := time.Now(), false
	err = backoff.RetryNotify(func() error {
		if err := t.log.Listen(); err != nil {
			return err
		}
		found, err := t.readEnd(ctx, mine)
		acked = max(acked, found)
		if err != nil {
			return err
		}
		return t.moveFence(ctx)
	}, retry, func(err error, wait time.Duration) {
		away = true
		t.config.Meter.Beat(len(mine))
		t.config.Events(observe.LogUnreachable{Role: observe.Writer, Err: t.log.Explain(err), Since: began, Again: wait})
		if time.Since(began) > abandonAfter {
			t.refuse(unreachable)
			t.abandon(unreachable)
		}
	})
	if err == nil {
		t.log.ForgetTrouble()
		t.config.Events(observe.FenceMoved{Seq: t.store.Cursor().Seq, Took: time.Since(began)})
		if away {
			t.config.Events(observe.LogReachable{After: time.Since(began)})
		}
	}
	return acked, err
}

// readEnd folds the log beyond the cursor; acked is as in fence.
func (t *Term) readEnd(ctx context.Context, mine []projections.Fact) (acked uint64, err error) {
	last, err := t.log.Last(ctx)
	if err != nil {
		return 0, err
	}
	if err := (eventlog.Extent{Seq: t.store.Cursor().Seq, By: eventlog.ByProjection}).CheckEnd(t.log.DB.LogStream(), last); err != nil {
		if t.shorter.IsZero() {
			t.shorter = time.Now()
		}
		if time.Since(t.shorter) > eventlog.TruncationDelay || t.config.Lease == 0 {
			return 0, backoff.Permanent(err)
		}
		return 0, err
	}
	t.shorter = time.Time{}
	var fault error
	var batch []projections.Fact // folded together: a reader sees all of it or none
	err = t.log.Read(ctx, t.store.Cursor().Seq+1, last, func(e *schema.Event) error {
		for len(mine) > 0 && mine[0].Seq < e.Seq {
			mine = mine[1:]
		}
		switch {
		case len(mine) > 0 && same(mine[0].Event, e):
			acked = e.Seq
		case t.phase != fencing && e.Type == schema.WriterStarted && eventlog.StartedBy(e) != t.name:
			fault = backoff.Permanent(ErrSuperseded)
			return fault
		}
		t.config.Meter.Beat(len(mine))
		if batch = append(batch, projections.Fact{Event: e}); e.More {
			return nil
		}
		defer func() { batch = nil }()
		return t.store.Fold(batch)
	})
	if err == nil && len(batch) > 0 {
		err = t.store.Fold(batch) // cut off: the log has lost its end
	}
	if errors.Is(err, eventlog.ErrGap) || errors.Is(err, eventlog.ErrTrimmed) {
		fault = backoff.Permanent(err)
	}
	return acked, errors.Join(fault, err)
}

// same reports whether an event read from the log is the one that was appended.
func same(a, b *schema.Event) bool {
	return a.Seq == b.Seq && a.Time == b.Time && a.Type == b.Type && a.ID == b.ID &&
		a.Previous == b.Previous && a.Cause == b.Cause && bytes.Equal(a.Body, b.Body)
}

// moveFence appends a WriterStarted after the cursor, or after the gap there. The
// append fails if that is not the end of the log.
func (t *Term) moveFence(ctx context.Context) error {
	cursor := t.store.Cursor()
	if t.phase == fencing && t.Clock.Manual() && cursor.Seq > 0 {
		return nil // nobody else writes in memory, and the next event has the next sequence
	}
	started, seq := eventlog.Started{Writer: t.name}, cursor.Seq+1
	if end := t.log.End; end.Last >= seq {
		started.Lost, seq = end.First, end.Last+1
	}
	if t.log.Lost.Last >= seq {
		started.Reused = t.log.Lost.Last
	}
	body, err := json.Marshal(started)
	if err != nil {
		return err
	}
	now, fault := t.Clock.Check()
	if fault != nil {
		now = 0 // log time stays where it is
	}
	e := &schema.Event{Seq: seq, Time: max(cursor.Time, now), Type: schema.WriterStarted,
		Collection: schema.InternalCollection, Body: body}
	if err := t.log.Append([]projections.Fact{{Event: e}}, eventlog.Single); err != nil {
		return err
	}
	timeout := time.NewTimer(t.ackTimeout())
	defer timeout.Stop()
	select {
	case a := <-t.log.Acks:
		if a.Err != nil {
			return a.Err
		}
		if err := t.store.Fold([]projections.Fact{{Event: e}}); err != nil {
			return err
		}
		t.log.Note(t.store.Cursor())
		t.log.Lost = eventlog.Gap{}
		return nil
	case <-timeout.C:
		return fmt.Errorf("append %d: no acknowledgement within %s", e.Seq, t.ackTimeout())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// recover finds out, after an append failed or timed out, which pending events are in
// the log. It replies to their proposals; the others are decided again.
func (t *Term) recover(ctx context.Context, cause error) error {
	began := time.Now()
	t.config.Events(observe.AppendFailed{Err: cause})
	mine := t.machine.Taken()
	acked, err := t.fence(ctx, mine)
	if err != nil && !errors.Is(err, ErrSuperseded) {
		return err
	}
	again := t.settle(acked)
	if err != nil {
		return err
	}
	t.config.Events(observe.AppendRecovered{Acked: acked, Decided: again, Took: time.Since(began)})
	t.recoveries++
	t.pause(ctx)
	return t.rollBack()
}

// rollBack forgets what is decided and not in the log, after settle.
func (t *Term) rollBack() error {
	t.groups, t.unsent = nil, nil
	t.Renewals.Clear()
	err := t.machine.Abort()
	t.searched = t.machine.Time() // of the WriterStarted, which records the pause
	return err
}

// pause backs off when the log has accepted nothing but the fence several times in a
// row: without it the retries would fill the log.
func (t *Term) pause(ctx context.Context) {
	if t.recoveries <= maxRecoveries {
		return
	}
	wait := min(eventlog.ResumeInterval<<min(t.recoveries-maxRecoveries, 10), maxPause)
	t.config.Events(observe.AppendsRejected{Times: t.recoveries, Again: wait})
	t.refuse(unreachable)
	t.abandon(unreachable)
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}

var batchHalfway = schema.ErrTimeout.With("the batch stopped halfway: some of its operations are applied; get the documents to see which")

// settle replies to the proposals whose events the log has, those up to sequence acked. The
// others are decided again, before what is in the queue; it returns their number.
func (t *Term) settle(acked uint64) int {
	var again []*Proposal
	for _, d := range t.pendingReplies {
		switch {
		case d.outcome.Seq <= acked:
			t.replyDurable(&d)
		case d.Batch != nil && d.first != 0 && d.first <= acked:
			d.refuse(batchHalfway)
		default:
			d.restart()
			again = append(again, d.Proposal)
		}
	}
	t.settleQueue(acked)
	t.queue = append(again, t.queue...)
	clear(t.pendingReplies)
	t.pendingReplies, t.replyBytes = t.pendingReplies[:0], 0
	return len(again)
}

// abandon replies to requests so that they do not wait for an unreachable log. Those in
// flight get a 504: they may be applied or not, and are not decided again. Those that
// wait to be decided get fault. Mutations of the stream stay.
func (t *Term) abandon(fault *schema.Error) {
	unknown := schema.ErrTimeout.With("no acknowledgement from the log in time: the write may or may not have been applied; read the document before you retry")
	t.pendingReplies = slices.DeleteFunc(t.pendingReplies, func(d decided) bool {
		d.reply(machine.Outcome{Code: unknown.Code, Fault: unknown})
		if d.Done != nil {
			t.replyBytes -= len(d.outcome.Body)
		}
		return d.Done != nil
	})
	t.refuseQueued(fault)
}
