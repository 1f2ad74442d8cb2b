package main

import (
	"os"
	"runtime"
	"time"
)

// Writing to files holds one of Go's processors until the kernel returns, with
// which others, of two in all, were waiting: while a million documents expired,
// one get of a hundred took 32 ms, and 8 with four times as many processors.
// With more of them reads alone are 3 % slower and expiries alone a fifth. So
// there are more while lapse writes and is asked.
const (
	writingThreads  = 4                      // times as many
	writingEvents   = 100                    // from which on, in one interval,
	writingRequests = 10                     // and requests
	writingFor      = 20                     // intervals without after which there are as many as before
	writingLook     = 100 * time.Millisecond // the interval
)

// widen has as many threads run Go as is good for what is done: events and
// requests tell how many there were. It returns what ends that. GOMAXPROCS, if
// set, has the last word.
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
