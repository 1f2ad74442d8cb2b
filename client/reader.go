package client

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/logread"
	"github.com/lapsedb/lapse/schema"
)

// A reader without a durable has a consumer while it reads. The log has a limit of these
// for all clients, so whoever makes one deletes it: at the end of the loop, after an error,
// and when the caller gave up while it was being made. What all of that misses, such as a
// kill, the server deletes after a while (inactive).

const (
	// farewell is the longest wait for the server when a reader ends.
	farewell = 2 * time.Second

	// deletion is the prefix of a JetStream API subject.
	deletion = "CONSUMER.DELETE."
)

// readerName returns a name for the consumer of a short-lived reader.
func readerName() string { return schema.ReaderConsumer + rand.Text() }

// reader creates a consumer for one loop, which drops it in the end. It waits a moment longer
// than ctx for the reply: a consumer that is created after the caller has gone would stay.
func (c *Client) reader(ctx context.Context, options logread.Options) (*logread.Consumer, error) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		longer, cancel = context.WithDeadline(longer, deadline.Add(farewell))
		defer cancel()
	}
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), nats.ErrPermissionViolation) {
			cancel()
		}
		time.AfterFunc(farewell, cancel)
	})()
	consumer, err := logread.Open(longer, c.log(), options)
	if done := ctx.Err(); done != nil {
		if err == nil {
			c.drop(ctx, consumer)
		}
		return nil, done
	}
	return consumer, err
}

// drop ends and deletes a consumer of reader, also when ctx is done: all clients share a
// small limit of consumers. It returns once the server has replied, so that the caller may
// close the connection. A consumer that cannot be deleted expires.
func (c *Client) drop(ctx context.Context, consumer *logread.Consumer) {
	consumer.Close()
	info := consumer.CachedInfo()
	subject := c.api() + deletion + info.Stream + "." + info.Name
	if c.denials.inboxes == schema.AuditorInboxes {
		subject += "." + schema.Auditor
	}
	if !c.nc.IsConnected() {
		_ = c.nc.PublishRequest(subject, c.nc.NewInbox(), nil) // sent after a reconnect
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	ctx, release := c.denials.guard(ctx, subject)
	defer release()
	_, _ = c.nc.RequestWithContext(ctx, subject, nil)
}
