package client

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// denials ends calls that the NATS server denies for lack of permissions. The server
// reports a denial asynchronously, without naming the request, so the call would
// otherwise run into its timeout.
type denials struct {
	mu      sync.Mutex
	waiting map[*waiter]struct{}
}

type waiter struct {
	part   string
	cancel context.CancelCauseFunc
}

// guard returns a context that is cancelled with nats.ErrPermissionViolation as its cause
// when the server denies a subject that contains part.
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

// listen adds denials to the error handler of a connection.
func (d *denials) listen(nc *nats.Conn) {
	before, inboxes := nc.ErrorHandler(), ` to "`+cmp.Or(nc.Opts.InboxPrefix, "_INBOX")+"."
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			d.end(err, strings.Contains(err.Error(), inboxes))
		}
		if before != nil {
			before(nc, sub, err)
		}
	})
}

// end ends the calls that a denial affects: all of them if it denies their inbox.
func (d *denials) end(err error, all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if strings.Contains(err.Error(), unpin) {
		return // no call waits for an unpin, and servers of earlier releases deny it
	}
	for w := range d.waiting {
		if all || strings.Contains(err.Error(), w.part) {
			w.cancel(err)
		}
	}
}

// denied returns the denial that ended the guarded context of a call, else err.
func (c *Client) denied(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, nats.ErrPermissionViolation) {
		return &failure{cause: cause, coded: ErrUnavailable.With("this NATS user has no permission for database %q: check the name of the database and the user's permissions", c.database)}
	}
	return err
}
