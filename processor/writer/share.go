package writer

import "time"

// Expiries share the processors with requests, reads too: with the fold, with the log,
// and with those who read what it appends. While nobody asks, they take all there is.
// While somebody does, a few are decided at a time, and after them expiries rest for as
// long as these took until they were folded. The longer more is due than was decided,
// the larger their share, so that a storm ends.
const (
	TurnExpiries = 256                   // expiries decided in a turn while clients ask
	IdleExpiries = 1024                  // expiries decided in a turn otherwise
	askedFor     = 20 * time.Millisecond // after a request, clients ask
	shareFor     = time.Minute           // of more being due, after which expiries take all again
)

// share is what expiries may take of the writer's time.
type share struct {
	asks   uint64    // requests that had come, and proposals decided, at the last look
	asked  time.Time // when the last of them was seen
	behind time.Time // since when more is due than was decided; zero if none is
	began  time.Time // when the last expiries were decided
	last   uint64    // sequence of the last of them
	rest   time.Time // until when the next ones wait
}

// wait returns how long expiries wait, 0 for not at all. asks grows with each request
// and each mutation; the log is folded up to the sequence folded.
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

// part returns how much of the time expiries take beyond their half, from 0 to 1.
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

// decided notes what a turn decided: the sequence before and after its expiries, which are
// the same without any, and whether more are due.
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

// fold notes that the log is folded up to a sequence, which it was not before.
func (s *share) fold(now time.Time, before, folded uint64) {
	if before < s.last && s.last <= folded {
		s.rest = now.Add(time.Duration((1 - s.part(now)) * float64(now.Sub(s.began))))
	}
}
