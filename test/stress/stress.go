// Package stress gives one test two lengths: a short one for every run, and a
// long one for
//
//	make stress
//
// which sets LAPSE_STRESS. What such a test draws at random comes of a seed that
// its failure tells; LAPSE_SEED repeats it.
package stress

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Long tells whether tests are to take their time.
func Long() bool { return os.Getenv("LAPSE_STRESS") != "" }

// Pick returns what a test does much of: quick, or long with LAPSE_STRESS.
func Pick[T any](quick, long T) T {
	if Long() {
		return long
	}
	return quick
}

// OneGoroutine skips a test under the race detector, which finds nothing in what
// one goroutine does and makes much work ten times as slow. It runs without.
func OneGoroutine(t testing.TB) {
	t.Helper()
	if raced {
		t.Skip("one goroutine has nobody to race with")
	}
}

// Seed returns the seed of a test: that of LAPSE_SEED, or another each time. A
// test that fails says which it was.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("LAPSE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("LAPSE_SEED: %v", err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("LAPSE_SEED=%d repeats this", seed)
		}
	})
	return seed
}

// Rand returns a source of random numbers that begins with Seed.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
