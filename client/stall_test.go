package client

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestDurableGoesOnAfterStall: a reader of a durable without contact to the server for
// long drops its messages and pulls again.
func TestDurableGoesOnAfterStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		delivered := delivery{seq: 1}
		d := &durable{
			every: time.Second, wake: make(chan struct{}, 1), space: make(chan struct{}, 1),
			window: newWindow(true), confirmed: time.Now(),
		}
		d.window.add(delivered)
		pulls := false
		go func() { pulls = d.waitForSpace(t.Context(), 1) }()
		time.Sleep(2*d.every + time.Millisecond)
		go func() { _, _ = d.next(t.Context()) }()
		synctest.Wait()
		if !pulls {
			t.Error("it waits for space, and has no message")
		}
	})
}
