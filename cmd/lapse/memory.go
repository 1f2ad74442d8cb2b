package main

import (
	"os"
	"runtime/debug"
)

// collectLess lets the heap grow by three times what lives before it is
// collected. What lives is little and bounded, caches outside the heap are the
// most of it, and each request leaves garbage: collecting took a tenth of the
// processor. GOGC, if set, has the last word.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
		ballast = make([]byte, ballastBytes)
	}
}

// ballast counts as living, so that a heap on which almost nothing lives is not
// collected several times a second: while it is, requests take longer, which are
// the slowest of a hundred. Nobody writes to it, so it takes no memory itself.
var ballast []byte

const ballastBytes = 64 << 20

// heapBytes is what the heap may grow to, besides the projection's cache and
// memtables, before it is collected more often: some more than requests, and
// what waits to be sent, can hold on to.
const heapBytes = 1 << 30

// limitHeap keeps garbage from multiplying what clients make lapse hold on to.
// Without cgo the cache and the memtables are on the heap themselves, with it
// they leave garbage that much more room.
// GOMEMLIMIT, if set, has the last word.
func limitHeap(cacheBytes int64, memTables uint64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(heapBytes + cacheBytes + int64(memTables) + int64(len(ballast)))
	}
}
