package host

import (
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/processor/clock"
)

// lapse needs the time since the machine booted, sleep included, to judge whether the wall
// clock was set (package clock). Go's monotonic clock stops during sleep on Linux. The
// system call for the other clock is made only when the wall clock has moved against Go's
// clock: after a sleep, or when somebody set the clock. Both look the same from here, and
// the system call tells them apart.

// awake is the state of the two clocks when the machine last woke up, or at the start. It
// is never changed, only replaced.
type awake struct {
	ahead time.Duration // wall clock minus Go's monotonic clock
	slept time.Duration // not counted by Go's monotonic clock
}

// machineClock returns the wall clock and the time since boot, which includes sleep, unlike
// Go's monotonic clock; nil where the system does not tell it. The clock may be read from
// many goroutines: of two that notice a sleep at the same time one stores it, and both
// return the right time.
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

// bootID identifies this boot of the machine, as the time since boot tells it; "" where the
// system has no boot id.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	offsets, _ := os.ReadFile("/proc/self/timens_offsets")
	return bootOf(string(id), string(offsets))
}

// bootOf returns a boot of its own for a time namespace that shifts the time since boot, as
// that of a restored container does. The namespace's number would not do: Linux reuses it.
func bootOf(id, offsets string) string {
	id = strings.TrimSpace(id)
	_, shift, _ := strings.Cut(strings.Join(strings.Fields(offsets), " "), "boottime ")
	if id == "" || shift == "" || shift == "0 0" {
		return id
	}
	return id + " " + shift
}
