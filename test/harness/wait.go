package harness

import (
	"context"
	"testing"
	"time"
)

// patience bounds a wait. A busy machine takes long.
const patience = time.Minute

// Check ends the test if there is an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Must is Check for a call that returns something else, too.
func Must(t testing.TB) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		Check(t, err)
	}
}

// Eventually waits until a condition holds, or fails the test after a minute.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// Repeat repeats do until it succeeds, or fails the test after a minute: requests in flight
// get no reply when a busy machine loses a connection.
func Repeat(t testing.TB, do func(context.Context) error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		err := do(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
