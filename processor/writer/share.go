package writer

import "time"

// Expiries share the processors with requests, including reads: with the fold, the log,
// and the consumers of its events. While no client sends requests, expiries take all
// the time. Otherwise a turn decides a few, and then expiries rest for as long as these
// took until they were folded. The longer more has been due than was decided, the larger
// their share, so that a storm ends.
const (
	TurnExpiries = 256                   // expiries decided in a turn while clients send requests
	IdleExpiries = 1024                  // expiries decided in a turn otherwise
	askedFor     = 20 * time.Millisecond // time after a request for which clients count as active
	shareFor     = time.Minute           // time behind, after which expiries take all the time again
)

// share limits the part of the writer's time that expiries take.
type share struct {
	asks   uint64    // requests and decided proposals counted at the last call of wait
	asked  time.Time // when asks last changed
	behind time.Time // since when more is due than was decided; zero if none is
	began  time.Time // when the last expiries were decided
	last   uint64    // sequence of the last of them
	rest   time.Time // end of the current rest
}

// wait returns how long expiries have to wait, 0 for not at all. asks grows with each
// request and each mutation; folded is the last sequence folded.
func (s *share) wait(now time.Time, asks, folded uint64) time.Duration {
	if asks != s.asks {
		s.asks, s.asked = asks, now
	}
	switch {
	case s.part(now) == 1:
		return 0
	case folded < s.last:
		return askedFor // or until the acknowledgement
	}
	return max(s.rest.Sub(now), 0)
}

// part returns the part of the time beyond their half that expiries take, from 0 to 1.
func (s *share) part(now time.Time) float64 {
	switch {
	case now.Sub(s.asked) >= askedFor:
		return 1
	case s.behind.IsZero():
		return 0
	}
	return min(float64(now.Sub(s.behind))/float64(shareFor), 1)
}

// limit returns how many expiries a turn may decide.
func (s *share) limit(now time.Time) int {
	return TurnExpiries + int(s.part(now)*(IdleExpiries-TurnExpiries))
}

// decided records a turn: the sequences before and after its expiries, which are equal if
// there were none, and whether more are due.
func (s *share) decided(now time.Time, before, last uint64, more bool) {
	if last > before {
		s.began, s.last = now, last
	}
	switch {
	case !more:
		s.behind = time.Time{}
	case s.behind.IsZero():
		s.behind = now
	}
}

// fold records that the log is folded from sequence before up to folded.
func (s *share) fold(now time.Time, before, folded uint64) {
	if before < s.last && s.last <= folded {
		s.rest = now.Add(time.Duration((1 - s.part(now)) * float64(now.Sub(s.began))))
	}
}
