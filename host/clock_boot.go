//go:build linux || darwin

package host

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns the time since boot, including sleep.
func sinceBoot() (time.Duration, bool) {
	id := int32(unix.CLOCK_MONOTONIC_RAW) // counts sleep on Darwin
	if runtime.GOOS == "linux" {
		id = 7 // CLOCK_BOOTTIME, which Darwin doesn't have
	}
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0, false
	}
	return time.Duration(t.Nano()), true
}
