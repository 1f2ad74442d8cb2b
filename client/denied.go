package client

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// denials ends calls that NATS refuses to carry. A server says so on the side,
// without naming the request, and nobody answers; without this a call for a
// database that isn't there would be told only when its time is up.
type denials struct {
	mu      sync.Mutex
	waiting map[*waiter]struct{}
}

type waiter struct {
	part   string
	cancel context.CancelCauseFunc
}

// guard returns a context that ends with nats.ErrPermissionViolation as its
// cause when a message to a subject that contains part is refused.
func (d *denials) guard(ctx context.Context, part string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &waiter{part, cancel}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == nil {
		d.waiting = make(map[*waiter]struct{})
	}
	d.waiting[w] = struct{}{}
	return ctx, func() {
		d.mu.Lock()
		delete(d.waiting, w)
		d.mu.Unlock()
		cancel(nil)
	}
}

// handle is the connection's error handler.
func (d *denials) handle(_ *nats.Conn, _ *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for w := range d.waiting {
		if strings.Contains(err.Error(), w.part) {
			w.cancel(err)
		}
	}
}

// denied returns the error of a call whose guarded context ended because it was
// refused, else err.
func (c *Client) denied(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, nats.ErrPermissionViolation) {
		return &failure{cause: cause, coded: ErrUnavailable.With("this NATS server does not let this user reach database %q: check the name of the database and the user's permissions", c.database)}
	}
	return err
}
