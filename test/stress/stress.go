// Package stress gives one test two lengths: a short one for every run, and a
// long one for
//
//	make stress
//
// which sets TEST_STRESS. Random choices of such a test come from a seed that a failure
// prints; TEST_SEED repeats it.
package stress

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// Long reports whether TEST_STRESS asks for long tests.
func Long() bool { return os.Getenv("TEST_STRESS") != "" }

// Pick returns the amount of work for a test: quick, or long with TEST_STRESS.
func Pick[T any](quick, long T) T {
	if Long() {
		return long
	}
	return quick
}

// OneGoroutine skips a test with one goroutine under the race detector, which finds
// nothing there and makes much work ten times as slow. It runs without.
func OneGoroutine(t testing.TB) {
	t.Helper()
	if raced {
		t.Skip("one goroutine has nobody to race with")
	}
}

// Seed returns the seed of a test: TEST_SEED, or a random one. A test that fails logs
// its seed.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("TEST_SEED: %v", err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("TEST_SEED=%d repeats this", seed)
		}
	})
	return seed
}

// Rand returns a source of random numbers, seeded with Seed.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}

// Heap returns the live bytes of the Go heap. With cgo, Pebble's block cache and
// memtables are not in it: C allocates them.
func Heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // released by finalizers and pools
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Settle waits until the heap is stable: Pebble's flushes and compactions, which hold
// memory, have ended.
func Settle() {
	for last, tries := Heap(), 0; tries < 100; tries++ {
		time.Sleep(200 * time.Millisecond)
		now := Heap()
		if d := now - last; -4<<10 < d && d < 4<<10 {
			return
		}
		last = now
	}
}
