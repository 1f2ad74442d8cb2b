package host

import (
	"os"
	"runtime"
	"time"
)

// A file write blocks one of Go's processors (P) until the kernel returns. On two
// cores, while a million documents expired, the p99 of a get was 32 ms, and 8 ms
// with four times as many Ps. But more Ps make reads alone 3 % slower and expiries
// alone a fifth. So GOMAXPROCS is raised only while lapse writes and gets requests.
const (
	writingThreads  = 4                      // factor for GOMAXPROCS
	writingEvents   = 100                    // minimum in one interval, with
	writingRequests = 10                     // minimum in the same interval
	writingFor      = 20                     // intervals below either, after which GOMAXPROCS is restored
	writingLook     = 100 * time.Millisecond // the interval
)

// widen raises GOMAXPROCS while the counters events and requests both grow, until stop
// is called. It does nothing if the environment sets GOMAXPROCS.
func widen(events, requests func() uint64) (stop func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	few := runtime.GOMAXPROCS(0)
	go func() {
		defer close(ended)
		defer runtime.GOMAXPROCS(few)
		ticks := time.NewTicker(writingLook)
		defer ticks.Stop()
		seen, asked, quiet := events(), requests(), writingFor
		for {
			select {
			case <-ticks.C:
			case <-done:
				return
			}
			nowSeen, nowAsked := events(), requests()
			writes := nowSeen-seen >= writingEvents && nowAsked-asked >= writingRequests
			seen, asked = nowSeen, nowAsked
			switch {
			case writes && quiet >= writingFor:
				runtime.GOMAXPROCS(writingThreads * few)
				quiet = 0
			case writes:
				quiet = 0
			case quiet < writingFor:
				if quiet++; quiet == writingFor {
					runtime.GOMAXPROCS(few)
				}
			}
		}
	}()
	return func() { close(done); <-ended }
}
