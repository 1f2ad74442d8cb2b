package host

import (
	"os"
	"runtime/debug"
)

// CollectLess sets GOGC to 300, unless the environment sets it. The live heap is
// small and bounded, most memory is caches outside the heap, and every request makes
// garbage: at 100, garbage collection took a tenth of the CPU.
func CollectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
		ballast = make([]byte, ballastBytes)
	}
}

// ballast counts as live heap, so that an almost empty heap is not collected several
// times a second, which would raise the p99 of requests. Nothing writes to it, so it
// takes no physical memory.
var ballast []byte

const ballastBytes = 64 << 20

// heapBytes is the part of the memory limit for everything but the projection's cache
// and memtables: a little more than requests and queued replies can retain.
const heapBytes = 1 << 30

// limitHeap sets the memory limit of the Go runtime, unless GOMEMLIMIT does. It keeps
// GOGC from multiplying the memory that clients can make lapse retain. With cgo the
// cache and memtables are outside the heap, and their part is left for garbage.
func limitHeap(cacheBytes int64, memTables uint64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(heapBytes + cacheBytes + int64(memTables) + int64(len(ballast)))
	}
}
