package main

import (
	"os"
	"runtime"
	"time"
)

// Writing to files holds one of Go's processors until the kernel returns, with
// which others, of two in all, were waiting: while a million documents expired,
// one get of a hundred took 32 ms, and 8 with four times as many processors.
// For reads alone more of them are 3 % slower. So there are more while lapse
// writes.
const (
	writingThreads = 4                      // times as many
	writingEvents  = 100                    // from which on, in one interval
	writingFor     = 20                     // intervals without after which there are as many as before
	writingLook    = 100 * time.Millisecond // the interval
)

// widen has as many threads run Go as is good for what is done: seq tells how many
// events there were. It returns what ends that. GOMAXPROCS, if set, has the last
// word.
func widen(seq func() uint64) (stop func()) {
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
		last, quiet := seq(), writingFor
		for {
			select {
			case <-ticks.C:
			case <-done:
				return
			}
			now := seq()
			writes := now-last >= writingEvents
			last = now
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
