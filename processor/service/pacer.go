package service

import (
	"context"
	"time"
)

// Queries, forecasts, index builds and the check of the log may take seconds, on the cores
// that requests need. They run in slices, and after each slice in which requests came or
// events were folded they pause for a multiple of it. So they get a share of the machine
// that shrinks when there is other work, and all of it when there is none.

// Pauses of background work while requests arrive, as multiples of the time worked: of a
// query, per query worker, and of the log's check; and of the index build, which has to keep
// up with the writer.
const (
	QueryPause = 4
	IndexPause = 1
)

// longestPause limits one pause.
const longestPause = 20 * time.Millisecond

// Pacer returns a function for long work to call repeatedly, with the time worked since
// the last call. If requests other than queries, or events to fold, arrived since then,
// it pauses for times that long, or until ctx ends, so that they go first.
func (s *Service) Pacer(times time.Duration) (pace func(ctx context.Context, worked time.Duration)) {
	urgent := func() uint64 { return s.Writer.Requests.Load() + s.Store.Cursor().Seq }
	last := urgent()
	return func(ctx context.Context, worked time.Duration) {
		before := last
		if last = urgent(); last == before {
			return
		}
		pause := time.NewTimer(min(times*worked, longestPause))
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}
