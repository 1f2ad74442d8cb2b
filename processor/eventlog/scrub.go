package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Scrub reads the folded part of the log to find damage: NATS checks a message's checksum
// only when it reads it. It reads the newest part before lapse serves, and the older part
// while it serves. Events that are not folded yet belong to the newest part, and folding
// reads them. If the log's files were checked, all folded events belong to the older
// part, unless the whole log is small enough to be compared with the projection.
type Scrub struct {
	log    *Log
	cursor projections.Cursor
	First  uint64 // of the log
	From   uint64 // first sequence of the newest part
}

// scrubBytes is the approximate size of the newest part. Reading it delays each start: over
// an external server 64 MiB take seconds, in which a restart of all processes has no writer.
const scrubBytes = 4 << 20

// NewScrub returns a scrub of the log up to cursor, the projection's.
func NewScrub(ctx context.Context, l *Log, cursor projections.Cursor) (*Scrub, error) {
	info, err := l.Stream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", l.DB.LogStream(), err)
	}
	quiet := *l // foreign messages were reported when they were folded
	quiet.events = observe.EventListener(nil).EnsureDefaults()
	s := &Scrub{log: &quiet, cursor: cursor, First: max(info.State.FirstSeq, 1)}
	s.From = s.First
	if info.State.Bytes > scrubBytes {
		events := info.State.Msgs * scrubBytes / info.State.Bytes
		end := max(info.State.LastSeq, cursor.Seq)
		s.From = max(s.First, min(end-min(events, end), cursor.Seq+1))
		if l.checked {
			s.From = max(s.First, cursor.Seq+1)
		}
	}
	return s, nil
}

// Newest reads the newest part. If that is the log from sequence 1, it also compares
// it with the projection. The writer may trim it meanwhile.
func (s *Scrub) Newest(ctx context.Context) error {
	if s.From > s.cursor.Seq {
		return nil
	}
	hash := uint64(0)
	err := s.log.readPatiently(ctx, s.From, s.cursor.Seq, func(e *schema.Event) error {
		hash = projections.Chain(hash, e)
		return nil
	})
	if errors.Is(err, ErrTrimmed) {
		if s.From, _, err = s.log.Bounds(ctx); err == nil {
			err = s.Newest(ctx)
		}
		return err
	}
	if err != nil {
		return err
	}
	if s.From == 1 && hash != s.cursor.Hash && s.cursor.Seq > 0 {
		return fmt.Errorf("%w: up to event %d stream %s is not the one that was folded; restore the stream from a copy", ErrGap, s.cursor.Seq, s.log.DB.LogStream())
	}
	return nil
}

// scrubSlice is how many events are read between two calls of pace: milliseconds.
const scrubSlice = 500

// Rest reads the older part. After each slice it calls pace with the slice's duration, so
// that other work gets its share. Retention may trim the part meanwhile. It returns an
// ErrGap if events are lost, or the error of ctx. Any other error passes: it calls unread
// with it and reads on.
func (s *Scrub) Rest(ctx context.Context, pace func(context.Context, time.Duration), unread func(error)) error {
	for at := s.First; at < s.From; {
		began, slice := time.Now(), at+scrubSlice
		err := s.log.readPatiently(ctx, at, s.From-1, func(e *schema.Event) error {
			if at = e.Seq + 1; at >= min(slice, s.From) {
				pace(ctx, time.Since(began))
				began, slice = time.Now(), at+scrubSlice
			}
			return nil
		})
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrTrimmed):
			if first, _, err := s.log.Bounds(ctx); err == nil {
				at = max(at, first)
			}
		case errors.Is(err, ErrGap):
			return err
		default:
			unread(err)
		}
	}
	return nil
}
