package main

import (
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/processor/clock"
)

// awake is how the two clocks stood when the machine was last seen to have
// slept, or at the start.
type awake struct {
	ahead time.Duration // of the time of day on Go's clock
	slept time.Duration // that Go's clock has not counted
}

// machineClock tells the time of day, and what has elapsed since the machine's
// boot with the time that it slept, which Go's clock does not count. That takes a system call,
// and it is asked often: so only when the time of day has moved against Go's
// clock, as it has after a sleep.
func machineClock() clock.Clock {
	began := time.Now()
	bootedBefore, ok := sinceBoot()
	if !ok {
		return nil
	}
	var last atomic.Pointer[awake]
	last.Store(&awake{})
	return func() (time.Time, time.Duration) {
		now := time.Now()
		counted := now.Sub(began)
		ahead := now.Round(0).Sub(began.Round(0)) - counted
		then := last.Load()
		if (ahead - then.ahead).Abs() < time.Millisecond {
			return now, bootedBefore + counted + then.slept
		}
		slept := then.slept
		booted, _ := sinceBoot()
		if more := booted - bootedBefore - time.Since(began) - slept; more > time.Millisecond {
			slept += more
		}
		last.CompareAndSwap(then, &awake{ahead, slept})
		return now, bootedBefore + counted + slept
	}
}

// bootID names this boot of the machine, "" where there is no such name: only Linux has one.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}
