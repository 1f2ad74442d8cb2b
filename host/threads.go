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

// widen raises GOMAXPROCS while the counters events and requests both grow, until stop is
// called. It does nothing if the environment sets GOMAXPROCS. It lowers only after
// writingFor intervals, since each change stops the world for a moment.
func widen(events, requests func() uint64) (stop func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	few, quiet := runtime.GOMAXPROCS(0), writingFor
	end := eachInterval(writingLook, events, requests, func(events, requests uint64) {
		switch writes := events >= writingEvents && requests >= writingRequests; {
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
	})
	return func() { end(); runtime.GOMAXPROCS(few) }
}

// eachInterval calls look after each interval with the growth of two counters in it, until
// stop is called. A counter that falls, as when a database fails, grows by a huge number
// once; look must bear that. stop returns when look runs no more.
func eachInterval(interval time.Duration, events, requests func() uint64, look func(events, requests uint64)) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(interval)
		defer ticks.Stop()
		lastEvents, lastRequests := events(), requests()
		for {
			select {
			case <-ticks.C:
			case <-done:
				return
			}
			nowEvents, nowRequests := events(), requests()
			look(nowEvents-lastEvents, nowRequests-lastRequests)
			lastEvents, lastRequests = nowEvents, nowRequests
		}
	}()
	return func() { close(done); <-ended }
}
