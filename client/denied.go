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
	nc      *nats.Conn
	inboxes string // of nc, with the final dot

	mu      sync.Mutex
	waiting map[*waiter]struct{}
	inbox   error  // the last denial of an inbox, which the server does not repeat
	of      uint64 // the number of reconnects before it; the next one subscribes again
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
	before := nc.ErrorHandler()
	d.nc, d.inboxes = nc, cmp.Or(nc.Opts.InboxPrefix, "_INBOX")+"."
	nc.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			d.end(err)
		}
		if before != nil {
			before(nc, sub, err)
		}
	})
}

// end ends the calls that a denial affects: all of them if it denies their inbox.
func (d *denials) end(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.ofInbox(err)
	if all {
		d.inbox, d.of = err, d.nc.Stats().Reconnects
	}
	// A user may lack these permissions; the calls around them do without.
	optional := strings.Contains(err.Error(), unpin) || strings.Contains(err.Error(), deletion)
	for w := range d.waiting {
		if all || strings.Contains(err.Error(), w.part) && (!optional || strings.Contains(w.part, deletion)) {
			w.cancel(err)
		}
	}
}

// ofInbox reports whether a denial is about the inboxes of the connection.
func (d *denials) ofInbox(err error) bool { return strings.Contains(err.Error(), ` to "`+d.inboxes) }

// cause returns the denial that ended a guarded context, or made a call wait in vain for
// a reply; nil if there is none.
func (d *denials) cause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, nats.ErrPermissionViolation) {
		return cause
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if timeout(err) && d.inbox != nil && d.of == d.nc.Stats().Reconnects {
		return d.inbox
	}
	return nil
}

// denied returns the denial that failed a call with a guarded context, else err. what is
// what the user lacks unless it is the inbox.
func (c *Client) denied(ctx context.Context, err error, what *Error) error {
	cause := c.denials.cause(ctx, err)
	if cause == nil {
		return err
	}
	if c.denials.ofInbox(cause) {
		what = ErrTimeout.With("this NATS user has no permission to receive replies at %s>: connect with its inbox prefix (--inbox-prefix, inbox_prefix of a NATS context, nats.CustomInboxPrefix); a write may have been applied", c.denials.inboxes)
	}
	return &failure{cause: cause, coded: what}
}

// noPermission is the error for a denial of a request.
func (c *Client) noPermission(subject string) *Error {
	return ErrUnavailable.With("this NATS user has no permission to publish to %s: permit that, or connect as a user who may", subject)
}

// noLog is the error for a denial of a subject of the log.
func (c *Client) noLog() *Error {
	stream := c.database.LogStream()
	return ErrUnavailable.With("this NATS user has no permission to read the log of database %q: permit %[2]sSTREAM.INFO.%[3]s, %[2]sSTREAM.MSG.GET.%[3]s and %[2]sCONSUMER.CREATE.%[3]s.>", c.database, c.api(), stream)
}
