//go:build !linux && !darwin

package host

import "time"

// sinceBoot returns false: the time since boot is unknown here.
func sinceBoot() (time.Duration, bool) { return 0, false }
