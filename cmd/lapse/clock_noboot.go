//go:build !linux && !darwin

package main

import "time"

// sinceBoot is not known.
func sinceBoot() (time.Duration, bool) { return 0, false }
