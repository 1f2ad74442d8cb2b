package processor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// scrub reads what of the log is folded already, since nobody else would notice
// that it can no longer be read: NATS looks at the checksum of a message when it
// reads it. Of a long log the newest part is read before lapse serves, and the
// rest while it does. What is not folded yet counts to the newest part: folding
// reads it.
type scrub struct {
	log    *eventLog
	cursor projections.Cursor
	first  uint64 // of the log
	from   uint64 // where the newest part begins
}

// scrubBytes is about how large the newest part is.
const scrubBytes = 64 << 20

func newScrub(ctx context.Context, l *eventLog, cursor projections.Cursor) (*scrub, error) {
	info, err := l.stream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", l.db.LogStream(), err)
	}
	quiet := *l // what is foreign was reported when it was folded
	quiet.events = (*EventListener)(nil).EnsureDefaults()
	s := &scrub{log: &quiet, cursor: cursor, first: max(info.State.FirstSeq, 1)}
	s.from = s.first
	if info.State.Bytes > scrubBytes {
		events := info.State.Msgs * scrubBytes / info.State.Bytes
		end := max(info.State.LastSeq, cursor.Seq)
		s.from = max(s.first, min(end-min(events, end), cursor.Seq+1))
	}
	return s, nil
}

// newest reads the newest part. If that is all there ever was, it is also
// compared with what was folded. Who writes may trim it meanwhile.
func (s *scrub) newest(ctx context.Context) error {
	if s.from > s.cursor.Seq {
		return nil
	}
	hash := uint64(0)
	err := s.log.ReadPatiently(ctx, s.from, s.cursor.Seq, func(e *schema.Event) error {
		hash = projections.Chain(hash, e)
		return nil
	})
	if errors.Is(err, errPast) {
		if s.from, _, err = s.log.Bounds(ctx); err == nil {
			err = s.newest(ctx)
		}
		return err
	}
	if err != nil {
		return err
	}
	if s.from == 1 && hash != s.cursor.Hash && s.cursor.Seq > 0 {
		return fmt.Errorf("%w: up to event %d stream %s is not what was folded; restore the stream from a copy", errHole, s.cursor.Seq, s.log.db.LogStream())
	}
	return nil
}

// scrubAtOnce is how many events are read before others get their turn.
const scrubAtOnce = 20_000

// rest reads what is older. Retention may trim it meanwhile.
func (s *scrub) rest(ctx context.Context, pace func(context.Context, time.Duration)) error {
	for at := s.first; at < s.from; {
		began := time.Now()
		through := min(at+scrubAtOnce, s.from) - 1
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
