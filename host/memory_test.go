package host

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhenQuiet: memory goes back once while events and requests hardly arrive, and again after
// they did.
func TestWhenQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seq, asked, given atomic.Uint64
		stop := whenQuiet(seq.Load, asked.Load, func() { given.Add(1) })
		after := func(events, requests uint64, intervals int, want uint64) {
			t.Helper()
			for range intervals {
				seq.Add(events)
				asked.Add(requests)
				time.Sleep(quietLook)
			}
			synctest.Wait()
			if got := given.Load(); got != want {
				t.Errorf("after %d times %d events and %d requests memory went back %d times, want %d", intervals, events, requests, got, want)
			}
		}
		time.Sleep(quietLook / 2) // between two ticks
		after(quietEvents+1, 0, 2*quietFor, 0)
		after(0, quietEvents+1, 2*quietFor, 0)
		after(quietEvents, quietEvents, quietFor-1, 0)
		after(quietEvents, quietEvents, 1, 1)
		after(0, 0, 10*quietFor, 1)
		after(0, quietEvents+1, 1, 1)
		after(0, 0, quietFor, 2)
		stop()
		after(quietEvents+1, 0, 1, 2)
		after(0, 0, quietFor, 2)
	})
}
