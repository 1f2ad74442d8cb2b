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

// scrub reads what of the log is folded already, since nobody else would notice
// that it can no longer be read: NATS looks at the checksum of a message when it
// reads it. Of a long log the newest part is read before lapse serves, and the
// rest while it does. What is not folded yet counts to the newest part: folding
// reads it.
type Scrub struct {
	log    *Log
	cursor projections.Cursor
	First  uint64 // of the log
	From   uint64 // where the newest part begins
}

// scrubBytes is about how large the newest part is.
const ScrubBytes = 64 << 20

func NewScrub(ctx context.Context, l *Log, cursor projections.Cursor) (*Scrub, error) {
	info, err := l.Stream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", l.DB.LogStream(), err)
	}
	quiet := *l // what is foreign was reported when it was folded
	quiet.events = observe.EventListener(nil).EnsureDefaults()
	s := &Scrub{log: &quiet, cursor: cursor, First: max(info.State.FirstSeq, 1)}
	s.From = s.First
	if info.State.Bytes > ScrubBytes {
		events := info.State.Msgs * ScrubBytes / info.State.Bytes
		end := max(info.State.LastSeq, cursor.Seq)
		s.From = max(s.First, min(end-min(events, end), cursor.Seq+1))
	}
	return s, nil
}

// newest reads the newest part. If that is all there ever was, it is also
// compared with what was folded. Who writes may trim it meanwhile.
func (s *Scrub) Newest(ctx context.Context) error {
	if s.From > s.cursor.Seq {
		return nil
	}
	hash := uint64(0)
	err := s.log.ReadPatiently(ctx, s.From, s.cursor.Seq, func(e *schema.Event) error {
		hash = projections.Chain(hash, e)
		return nil
	})
	if errors.Is(err, ErrPast) {
		if s.From, _, err = s.log.Bounds(ctx); err == nil {
			err = s.Newest(ctx)
		}
		return err
	}
	if err != nil {
		return err
	}
	if s.From == 1 && hash != s.cursor.Hash && s.cursor.Seq > 0 {
		return fmt.Errorf("%w: up to event %d stream %s is not what was folded; restore the stream from a copy", ErrGap, s.cursor.Seq, s.log.DB.LogStream())
	}
	return nil
}

// scrubAtOnce is how many events are read before others get their turn.
const scrubAtOnce = 20_000

// rest reads what is older. Retention may trim it meanwhile.
func (s *Scrub) Rest(ctx context.Context, pace func(context.Context, time.Duration)) error {
	for at := s.First; at < s.From; {
		began := time.Now()
		through := min(at+scrubAtOnce, s.From) - 1
		err := s.log.Read(ctx, at, through, func(e *schema.Event) error { through = max(through, e.Seq); return nil })
		if err != nil {
			first, _, boundsErr := s.log.Bounds(ctx)
			if boundsErr != nil || first <= at {
				return err
			}
			at = first
			continue
		}
		at = through + 1
		pace(ctx, time.Since(began))
	}
	return nil
}
