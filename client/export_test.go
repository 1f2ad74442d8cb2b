package client

import (
	"context"
	"testing"
	"time"
)

// Heartbeat sets the interval in which the server reports that a push consumer lives.
func Heartbeat(d time.Duration) Option { return func(o *options) { o.heartbeat = d } }

// Standstill sets how long a reader with an end waits for its next message.
func Standstill(d time.Duration) Option { return func(o *options) { o.standstill = d } }

// Handled passes an event to the body of a loop.
func Handled(c *Client, ctx context.Context, e *Event, body func(*Event, error) bool) bool {
	return c.handled(ctx, e, nil, body)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
