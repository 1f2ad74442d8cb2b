package host

import (
	"cmp"
	"os"
	"runtime/debug"
	"time"

	"github.com/lapsedb/lapse/internal/memory"
	"github.com/lapsedb/lapse/processor"
)

// Memory is divided in one place. internal/memory knows what the process may use; divided
// gives each part of a processor its size, unless the user has set one; limitHeap bounds
// the sum by the runtime's memory limit; and giveBack returns what a quiet process does not
// need. docs/contributing/architecture.md has the measurements.
//
// Only commands of lapse change settings of the whole process, GOGC among them
// (Options.OwnProcess): a program that embeds lapse has its own.

// CollectLess sets GOGC to 300, unless the environment sets it, and C's allocator. The live
// heap is small and bounded, most of it is caches, and every request makes garbage: at 100,
// garbage collection took a tenth of the CPU. Commands that fold whole logs call it, too.
func CollectLess() {
	memory.OneArena()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300)
		ballast = make([]byte, memory.Of().Ballast)
	}
}

// ballast counts as live heap, so that an almost empty heap is not collected several
// times a second, which would raise the p99 of requests. Nothing writes to it, so it
// takes no physical memory.
//
//lint:ignore U1000 it is there to be live heap, not to be read
var ballast []byte

// limitHeap sets the memory limit of the Go runtime, unless GOMEMLIMIT does, and returns
// what the process should stay below, in bytes. It keeps GOGC from multiplying the memory
// that clients can make lapse retain.
func limitHeap(cacheBytes int64) int64 {
	budget := memory.Of()
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(budget.HeapLimit(cacheBytes))
	}
	return budget.Total - budget.Cache + cacheBytes
}

// divided returns o with the sizes that follow from the memory of the process where o has
// none.
func divided(o processor.Options) processor.Options {
	budget, p := memory.Of(), &o.Projection
	p.CacheBytes = cmp.Or(p.CacheBytes, budget.Cache)
	p.MemTableBytes = cmp.Or(p.MemTableBytes, uint64(budget.MemTable))
	p.DocumentBytes = cmp.Or(p.DocumentBytes, budget.Documents)
	o.HeldBytes = cmp.Or(o.HeldBytes, budget.Requests)
	return o
}

// Memory goes back to the system once the process has been quiet. It costs a collection
// of garbage, and later reads of what the block cache no longer has.
const (
	quietLook   = 5 * time.Second // the interval
	quietFor    = 6               // intervals
	quietEvents = 50              // the most events, and requests, in an interval
)

// whenQuiet calls do once the counters events and requests have hardly grown for quietFor
// intervals, and again after they did, until stop is called. do runs on whenQuiet's
// goroutine, at most once for each quiet time.
func whenQuiet(events, requests func() uint64, do func()) (stop func()) {
	quiet := 0
	return eachInterval(quietLook, events, requests, func(events, requests uint64) {
		if events > quietEvents || requests > quietEvents {
			quiet = 0
		} else if quiet++; quiet == quietFor {
			do()
		}
	})
}

// giveBack returns memory to the system that databases with these options need while they
// are busy: three quarters of the block cache, what was not read of late, and garbage.
// Reserving a part of the cache makes Pebble evict as much; ending the reservation at once
// lets the cache grow again when it is needed.
func giveBack(o processor.Options) {
	cache := o.Projection.Cache
	cache.Reserve(int(cache.MaxSize() / 4 * 3))()
	memory.GiveBack()
}
