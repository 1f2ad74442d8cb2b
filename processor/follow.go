package processor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// A standby reads the log and folds it, as the writer does after each acknowledgement, so
// both have the same projection at the same sequence. It never decides: a document past its
// deadline is left out of replies, and stays in the projection until the writer's
// DocumentExpired.
//
// Each attempt first checks that the log is still the one that was folded, then follows it
// until something fails. What time heals is tried again for ever (an outage, an election);
// what it does not is the error of the processor: a gap, a trimmed log, another log, a
// projection that cannot be written. A log that looks shorter, or like another one, has to
// look so for TruncationDelay.

// follow folds the log of a standby as it grows, until ctx ends. It returns an error that
// a retry cannot fix.
func (p *Processor) follow(ctx context.Context) error {
	retry := eventlog.TryForever(ctx)
	var other time.Time // since when the log has been a different one, or has ended before the cursor
	var since time.Time // when the log became unreachable, zero while it is reachable
	reached := func() {
		p.log.Full.Store(false)
		if !since.IsZero() {
			p.options.Events(observe.LogReachable{After: time.Since(since)})
			since = time.Time{}
		}
	}
	err := backoff.RetryNotify(func() error {
		last, err := p.log.Last(ctx)
		if err != nil {
			return err
		}
		folded := p.store.Cursor().Seq
		err = eventlog.Extent{Seq: folded, By: eventlog.ByProjection}.CheckEnd(p.log.DB.LogStream(), last)
		if err != nil {
			// as below
		} else if why, fault := snapshot.Mismatch(ctx, p.log, p.store.Cursor()); fault != nil {
			return fault
		} else if why != "" && folded > 0 { // it may have grown since
			if trimmed := p.log.Trimmed(ctx, folded+1); trimmed != nil {
				return backoff.Permanent(trimmed)
			}
			err = fmt.Errorf("stream %s is no longer the log that was folded (%s): restart lapse, and it rebuilds the projection", p.log.DB.LogStream(), why)
		}
		if err != nil {
			// A NATS server that was cut off answers from its old state for a moment.
			if other.IsZero() {
				other = time.Now()
			}
			if time.Since(other) > eventlog.TruncationDelay {
				return backoff.Permanent(err)
			}
			return err
		}
		other = time.Time{}
		err = p.log.OrTrimmed(ctx, p.followFrom(ctx, folded+1, reached))
		if p.store.Cursor().Seq > folded {
			retry.Reset()
		}
		if errors.Is(err, eventlog.ErrGap) || errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, errFold) {
			return backoff.Permanent(err)
		}
		return err
	}, retry, func(err error, wait time.Duration) {
		if since.IsZero() {
			since = time.Now()
		}
		p.options.Events(observe.LogUnreachable{Role: observe.Standby, Err: p.log.Explain(err), Since: since, Again: wait})
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// errFold marks a failure of the projection.
var errFold = errors.New("fold the log")

// followFrom is one attempt of follow and returns only with an error. It folds in groups,
// and an atomic batch in one, so that readers see all or none of it, as on the writer. It
// calls reached when the log answers. When no more events wait (Idle) it folds what it has.
func (p *Processor) followFrom(ctx context.Context, from uint64, reached func()) error {
	facts := make([]projections.Fact, 0, eventlog.FoldAtOnce)
	bytes := 0
	fold := func() error {
		if len(facts) == 0 || facts[len(facts)-1].More {
			return nil
		}
		if err := p.store.Fold(facts); err != nil {
			return fmt.Errorf("%w: %w", errFold, err)
		}
		p.log.Note(p.store.Cursor())
		for i := range facts {
			p.writer.Observe(&facts[i], false)
		}
		clear(facts)
		facts, bytes = facts[:0], 0
		return nil
	}
	visit := p.log.Contiguous(from, func(e *schema.Event) error {
		facts = append(facts, projections.Fact{Event: e})
		if bytes += len(e.Body); len(facts) >= eventlog.FoldAtOnce || bytes > eventlog.FoldAtBytes {
			return fold()
		}
		return nil
	})
	reader := eventlog.Puller{JS: p.log.Bulk, Stream: p.log.DB.LogStream(), Messages: eventlog.ReadAhead, Bytes: eventlog.ReadAheadBytes, Idle: fold, FailFast: true, Began: reached}
	return reader.Read(ctx, from, func(seq uint64, m *nats.Msg) error {
		return visit(p.log.Decode(seq, m.Subject, m.Header, m.Data))
	})
}
