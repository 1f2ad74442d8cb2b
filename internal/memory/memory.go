// Package memory says how much memory a process may use, how lapse divides it, and how much
// it uses.
//
// It imports nothing of lapse. Start reading at Budget; cgroup.go reads the limits of
// control groups, malloc_glibc.go is about C's allocator.
package memory

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
)

// most is what lapse takes at most, unless its user gives the cache more: beyond it the
// kernel's cache of the projection's files does as well.
const most = 800 << 20

// Budget is how lapse divides its memory, in bytes.
type Budget struct {
	// Total is what the process should stay below, without the pages of the program's file.
	Total int64
	// Cache is the part of the block cache. Memtables take their space from it.
	Cache     int64
	MemTable  int64 // of each memtable
	Documents int64 // of the cache of recently changed documents
	Ballast   int64 // counts as live heap and is no memory
	// Requests and Unread count requests without a reply, and replies and feed that
	// clients have not read.
	Requests, Unread int64
}

// Of returns the budget of this process: three quarters of what its control groups or the
// machine have, GOMEMLIMIT, or 800 MiB, whichever is least.
func Of() Budget {
	goLimit := int64(math.MaxInt64)
	if os.Getenv("GOMEMLIMIT") != "" {
		goLimit = debug.SetMemoryLimit(-1)
	}
	return divide(available(os.DirFS("/"), goLimit))
}

// available returns the bytes that a process may take; root is the file system and
// goLimit that of the Go runtime, math.MaxInt64 for none.
func available(root fs.FS, goLimit int64) int64 {
	given := int64(math.MaxInt64)
	if machine := kilobytes(root, "proc/meminfo", "MemTotal:"); machine > 0 {
		given = machine
	}
	return min(min(given, groupLimit(root))/4*3, goLimit)
}

// kilobytes returns a figure of a file in proc, in bytes; 0 if it is not there.
func kilobytes(root fs.FS, file, name string) int64 {
	text, _ := fs.ReadFile(root, file)
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) >= 2 && string(f[0]) == name {
			n, _ := strconv.ParseInt(string(f[1]), 10, 64)
			return n << 10
		}
	}
	return 0
}

// least is the total for which parts do not shrink further: below it lapse may not fit.
const least = 96 << 20

// divide gives each part its share of what is available. What they leave, a tenth, is for
// the rest of the heap.
func divide(available int64) Budget {
	total := min(max(available, least), most)
	cache := total / 2
	if outside {
		cache /= 2 // C's allocator holds up to twice what it has allocated
	}
	return Budget{
		Total: total, Cache: cache, MemTable: min(total/24, 32<<20), Documents: min(total/32, 24<<20),
		Ballast: total / 12, Requests: min(total/6, 128<<20), Unread: total / 5,
	}
}

// HeapLimit is the memory limit of the Go runtime with a cache of the given size.
func (b Budget) HeapLimit(cache int64) int64 {
	limit := b.Total - b.Cache + b.Ballast
	if outside {
		return limit - b.Cache // what C's allocator holds besides
	}
	return limit + cache
}

// Resident returns the bytes of physical memory that the process has, with the pages of
// the program's file; 0 where that is not known.
func Resident() int64 { return kilobytes(os.DirFS("/"), "proc/self/status", "VmRSS:") }

// Heap returns the bytes of the objects in Go's heap, those included that are no longer used
// and not yet collected.
func Heap() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// GiveBack returns to the system what the process does not use. It may take as long as a
// garbage collection.
func GiveBack() {
	debug.FreeOSMemory()
	trim()
}
