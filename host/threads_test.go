package host

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWiden: GOMAXPROCS rises while both events and requests arrive, falls after a quiet
// time, and is restored at the end.
func TestWiden(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	few := runtime.GOMAXPROCS(0)
	synctest.Test(t, func(t *testing.T) {
		var seq, asked atomic.Uint64
		requests := uint64(writingRequests)
		stop := widen(seq.Load, asked.Load)
		after := func(events uint64, intervals int, want int) {
			t.Helper()
			for range intervals {
				seq.Add(events)
				asked.Add(requests)
				time.Sleep(writingLook)
			}
			synctest.Wait()
			if got := runtime.GOMAXPROCS(0); got != want {
				t.Errorf("after %d times %d events there are %d processors, want %d", intervals, events, got, want)
			}
		}
		time.Sleep(writingLook / 2) // between two ticks
		after(writingEvents-1, 5, few)
		requests--
		after(writingEvents, 5, few)
		requests++
		after(writingEvents, 1, writingThreads*few)
		after(0, writingFor-1, writingThreads*few)
		after(writingEvents, 1, writingThreads*few)
		after(0, writingFor, few)
		after(writingEvents, 1, writingThreads*few)
		stop()
		after(0, 0, few)
	})
}
