package host

import (
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/processor/clock"
)

// awake is the state of the two clocks when the machine last woke up, or at the start.
type awake struct {
	ahead time.Duration // wall clock minus Go's monotonic clock
	slept time.Duration // not counted by Go's monotonic clock
}

// machineClock returns the wall clock and the time since boot, which includes sleep,
// unlike Go's monotonic clock. It makes the system call for that only when the wall
// clock has moved against Go's clock, as it has after a sleep.
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
