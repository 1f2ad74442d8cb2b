package processor

import (
	"sync/atomic"
	"time"
)

// How much longer than it worked something waits while there is other work.
const (
	queryPause = 4
	indexPause = 1 // it has to keep up with the writer
)

// pacer returns what long work calls now and then, with how long it worked. It
// waits times as long if there were requests, other than queries, or events to
// fold since it was called last: they go first, and what works without a pause
// keeps a processor from them.
func (s *service) pacer(times time.Duration) (pace func(worked time.Duration)) {
	var last atomic.Uint64
	return func(worked time.Duration) {
		now := s.others.Load() + s.store.Cursor().Seq
		if last.Swap(now) != now {
			time.Sleep(times * worked)
		}
	}
}
