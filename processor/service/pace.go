package service

import (
	"context"
	"time"
)

// How much longer than it worked something waits while there is other work:
// a query, times as long for each that may run beside it.
const (
	QueryPause = 4
	IndexPause = 1 // it has to keep up with the writer
)

// longestPause bounds one pause.
const longestPause = 20 * time.Millisecond

// Pacer returns what long work calls now and then, with how long it worked. It
// waits times as long, or until ctx is done, if there were requests, other than
// queries, or events to fold since the last call: they go first, and what works
// without a pause keeps a processor from them.
func (s *Service) Pacer(times time.Duration) (pace func(ctx context.Context, worked time.Duration)) {
	others := func() uint64 { return s.Others.Load() + s.Store.Cursor().Seq }
	last := others()
	return func(ctx context.Context, worked time.Duration) {
		before := last
		if last = others(); last == before {
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
