package writer

import "time"

// Expiries share the processors with requests: with reads, with the fold, the log, and the
// consumers of its events. A turn decides a slice of them. Two things are constant: one
// slice is in flight at a time, and a short rest follows it. One is steered, the size of the
// slice, by the requests and mutations that came since the last one, which it may have
// delayed: many shrink it, few let it grow. It has a minimum, so that a storm ends. At its
// maximum, without clients or with few, a second slice is in flight and none rests.
//
// The age of the oldest request that waits would say more of each request. But at 99 of
// 100 slices, whatever their size, none had waited here for more than 50 µs: on few cores
// requests wait in the kernel and in NATS. test/README.md, Storms, has the figures.
//
// Besides the machine's state, only size and remainder are kept, both limited, so that a
// failed append cannot stop expiries.
const (
	leastSlice = 64
	mostSlice  = 1024
	tolerable  = 8                     // requests and mutations that a slice may delay
	longSlice  = 20 * time.Millisecond // beyond this time after a slice, what came was not delayed by it
	restPart   = 10                    // part of the time of a slice for which expiries rest
	mostRest   = 2 * time.Millisecond  // limit of that
)

// share limits the part of the writer's time that expiries take.
type share struct {
	slice    int       // expiries in the next turn; 0 for mostSlice
	received uint64    // requests and mutations until the last slice
	began    time.Time // of the last slice
	rest     time.Time // end of the rest
}

// steer sets the size of the next slice, and returns it. received counts all requests
// and mutations. After a time without expiries it goes by how many came in longSlice of it.
func (s *share) steer(now time.Time, received uint64) int {
	came, since := received-s.received, now.Sub(s.began)
	if since > longSlice {
		came = uint64(float64(came) * float64(longSlice) / float64(since))
	}
	switch {
	case s.slice == 0 || since > longSlice && came <= tolerable:
		s.slice = mostSlice
	case came > tolerable:
		s.slice = max(s.slice-s.slice/4, leastSlice)
	default:
		s.slice = min(s.slice+s.slice/8, mostSlice)
	}
	s.received, s.began = received, now
	return s.slice
}

// wait returns how long expiries have to wait, 0 for not at all; inFlight are the expiries
// that are not folded.
func (s *share) wait(now time.Time, inFlight int) time.Duration {
	switch free := s.slice == 0 || s.slice == mostSlice; {
	case free && inFlight <= s.slice:
		return 0
	case inFlight > 0:
		return time.Hour // an acknowledgement ends the wait
	}
	return max(s.rest.Sub(now), 0)
}

// folded records that the last slice was folded.
func (s *share) folded(now time.Time) {
	s.rest = now.Add(min(now.Sub(s.began)/restPart, mostRest))
}
