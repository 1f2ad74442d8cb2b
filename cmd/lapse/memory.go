package main

import (
	"os"
	"runtime/debug"
)

// collectLess lets the heap grow to three times what lives before it is
// collected. What lives is little and bounded, caches outside the heap are the
// most of it, and each request leaves garbage: collecting took a tenth of the
// processor. GOGC, if set, has the last word.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
	}
}
