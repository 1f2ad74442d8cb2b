package writer

import (
	"testing"
	"time"
)

// TestExpiryShare: expiries take all the time while no client sends requests. Otherwise they
// come in small groups, one at a time, and rest for as long as the last one took. Both
// limits relax the longer more has been due than was decided.
func TestExpiryShare(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var s share
	const half = (TurnExpiries + IdleExpiries) / 2
	waits := func(asks, folded uint64, want time.Duration, limit int) {
		t.Helper()
		if got := s.wait(now, asks, folded).Round(time.Millisecond); got != want {
			t.Errorf("a wait of %s, want %s", got, want)
		}
		if got := s.limit(now); got != limit {
			t.Errorf("a limit of %d, want %d", got, limit)
		}
	}
	waits(0, 0, 0, IdleExpiries)
	s.decided(now, 0, 100, true)
	waits(0, 0, 0, IdleExpiries) // though none of them is folded

	waits(1, 0, askedFor, TurnExpiries)
	now = now.Add(4 * time.Millisecond)
	s.fold(now, 0, 50)
	waits(2, 50, askedFor, TurnExpiries)
	s.fold(now, 50, 100)
	waits(3, 100, 4*time.Millisecond, TurnExpiries)
	now = now.Add(4 * time.Millisecond)
	waits(3, 100, 0, TurnExpiries)
	now = now.Add(askedFor)
	waits(3, 100, 0, IdleExpiries) // no client sends requests any more

	now = now.Add(shareFor / 2)
	waits(4, 100, 0, half)
	s.decided(now, 100, 200, true)
	now = now.Add(4 * time.Millisecond)
	waits(5, 100, askedFor, half)
	s.fold(now, 100, 200)
	if got := s.wait(now, 6, 200); got < time.Millisecond || got > 2*time.Millisecond {
		t.Errorf("a wait of %s where half a minute is behind, and 4 ms were taken", got)
	}
	now = now.Add(shareFor / 2)
	s.decided(now, 200, 300, true)
	waits(7, 200, 0, IdleExpiries) // a minute behind

	s.decided(now, 300, 400, false) // all due ones were decided
	waits(8, 200, askedFor, TurnExpiries)
	s.fold(now, 200, 400)
	waits(9, 400, 0, TurnExpiries)

	s.decided(now, 400, 500, true)
	now = now.Add(shareFor)
	s.decided(now, 500, 500, false) // the others were renewed
	waits(10, 500, 0, TurnExpiries)
}
