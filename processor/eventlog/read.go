package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/lapsedb/lapse/logread"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Bounds returns the first and last sequence in the log, without a gap at its end.
func (l *Log) Bounds(ctx context.Context) (first, last uint64, err error) {
	info, err := l.Stream.Info(ctx)
	if err != nil {
		return 0, 0, err
	}
	if last = info.State.LastSeq; last == l.End.Last {
		last = max(l.End.First, 1) - 1
	}
	return info.State.FirstSeq, last, nil
}

// Last returns the last sequence of Bounds, with a short timeout: callers retry.
func (l *Log) Last(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	_, last, err := l.Bounds(ctx)
	return last, err
}

// ServerTime returns the time of the NATS server's clock.
func (l *Log) ServerTime(ctx context.Context) (time.Time, error) {
	info, err := l.Stream.Info(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return info.TimeStamp, nil
}

// Event reads one event; jetstream.ErrMsgNotFound if there is none.
func (l *Log) Event(ctx context.Context, seq uint64) (*schema.Event, error) {
	m, err := l.led().Get(ctx, seq)
	if err != nil {
		return nil, err
	}
	return l.Decode(seq, m.Subject, m.Header, m.Data), nil
}

// FirstSince returns the sequence of the first event at or after a log time (Unix ms),
// or the sequence after the last one.
func (l *Log) FirstSince(ctx context.Context, at int64) (seq uint64, err error) {
	first, last, err := l.Bounds(ctx)
	if err != nil {
		return 0, err
	}
	return l.led().FirstSince(ctx, first, last, at)
}

// led returns the stream of the log, whose messages its leader reads.
func (l *Log) led() logread.Stream { return logread.Stream{JS: l.JS, Name: l.DB.LogStream()} }

// Decode decodes a message of the log. A foreign message is reported and has the type
// NoEvent: it is counted and skipped, never fatal.
func (l *Log) Decode(seq uint64, subject string, header nats.Header, body []byte) *schema.Event {
	collection, eventType, ok := schema.SplitEventSubject(strings.TrimPrefix(subject, l.DB.Events()[:len(l.DB.Events())-1]))
	if ok && strings.HasPrefix(subject, l.DB.Events()) {
		e, err := schema.DecodeEvent(seq, collection, eventType, header.Get, body)
		if err == nil {
			e.More = header.Get(jetstreamext.BatchIDHeader) != "" && header.Get(jetstreamext.BatchCommitHeader) == ""
			return e
		}
		l.events(observe.ForeignMessage{Seq: seq, Subject: subject, Err: err})
	} else {
		l.events(observe.ForeignMessage{Seq: seq, Subject: subject})
	}
	return &schema.Event{Seq: seq, Body: body}
}

// Read visits the events from sequence from through sequence through, or the event
// after an accepted gap at through. It returns ErrGap at any other gap, and ErrTrimmed
// if retention removed events before they were read.
func (l *Log) Read(ctx context.Context, from, through uint64, visit func(*schema.Event) error) error {
	if from > through {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stalled := time.AfterFunc(readTimeout, func() { cancel(fmt.Errorf("no message for %s", readTimeout)) })
	defer stalled.Stop()
	defer cancel(nil)
	visit = l.Contiguous(from, visit)
	p := Puller{JS: l.Bulk, Stream: l.DB.LogStream(), Messages: ReadAhead, Bytes: ReadAheadBytes}
	var visited error
	err := p.Read(ctx, from, func(seq uint64, m *nats.Msg) error {
		stalled.Reset(readTimeout)
		if visited = visit(l.Decode(seq, m.Subject, m.Header, m.Data)); visited == nil && seq >= through {
			return errRead
		}
		return visited
	})
	switch {
	case visited != nil:
		return l.OrTrimmed(ctx, visited)
	case errors.Is(err, errRead):
		return nil
	}
	return fmt.Errorf("read the log: %w", errors.Join(err, context.Cause(ctx)))
}

// readPatiently is Read that resumes when the stream loses its consumer or leader, as
// long as it makes progress.
func (l *Log) readPatiently(ctx context.Context, from, through uint64, visit func(*schema.Event) error) error {
	retry := tryFor(ctx, openTimeout)
	return backoff.Retry(func() error {
		var visited error
		err := l.Read(ctx, from, through, func(e *schema.Event) error {
			if visited = visit(e); visited == nil {
				from = e.Seq + 1
				retry.Reset()
			}
			return visited
		})
		if visited != nil || errors.Is(err, ErrGap) || errors.Is(err, ErrTrimmed) {
			return backoff.Permanent(err)
		}
		return err
	}, retry)
}

// errRead ends a read at its last event.
var errRead = errors.New("read")

const (
	readTimeout    = 10 * time.Second // between two messages
	ReadAhead      = 4096             // messages requested ahead when reading the log
	ReadAheadBytes = 32 << 20
	FoldAtOnce     = 1000 // events folded at a time
	FoldAtBytes    = 8 << 20
)

// CatchUp folds the log from the store's cursor through sequence through. It calls
// progress, if not nil, with the last sequence folded, after each fold, from a goroutine of
// its own.
//
// Two batches take turns: one is read and decoded while the other is folded. done has one
// value while no fold runs, so taking it is both the wait and the permission to fold. A
// batch ends after an event, never within an atomic batch (More).
func (l *Log) CatchUp(ctx context.Context, store *projections.Store, through uint64, progress func(seq uint64)) error {
	// read and decode the next facts while the previous ones are folded.
	read, folded := make([]projections.Fact, 0, FoldAtOnce), make([]projections.Fact, 0, FoldAtOnce)
	done := make(chan error, 1)
	done <- nil
	fold := func() error {
		if err := <-done; err != nil {
			done <- err
			return err
		}
		clear(folded)
		read, folded = folded[:0], read
		go func() {
			err := store.Fold(folded)
			if err == nil && progress != nil && len(folded) > 0 {
				progress(folded[len(folded)-1].Seq)
			}
			done <- err
		}()
		return nil
	}
	bytes := 0
	err := l.readPatiently(ctx, store.Cursor().Seq+1, through, func(e *schema.Event) error {
		read = append(read, projections.Fact{Event: e})
		if bytes += len(e.Body); !e.More && (len(read) >= FoldAtOnce || bytes > FoldAtBytes) {
			bytes = 0
			return fold()
		}
		return nil
	})
	if failed := fold(); failed != nil {
		return failed
	}
	return errors.Join(err, <-done)
}
