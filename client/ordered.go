package client

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/logread"
)

const (
	// inactive is the time without a reader after which the server deletes a consumer.
	inactive = 30 * time.Second

	// maxResets is how often a feed that ends is begun again without a message since.
	maxResets = 3

	// Limits of what is pulled and not yet read: enough to read fast, and bounded in memory
	// for large documents.
	pullMessages = 1000
	pullBytes    = 16 << 20
)

// ordered is the source of a feed without a stored position. After a gap it makes its
// consumer again, after the last message: config always says where to go on. mu guards
// consumer and ended, since the end of ctx stops it from another goroutine; the rest
// belongs to the reader.
type ordered struct {
	client *Client
	ctx    context.Context
	config jetstream.ConsumerConfig
	most   int // resets without a message since, below 0 for no limit
	resets int // of those that remain

	release func() bool

	mu       sync.Mutex
	consumer *logread.Consumer // nil while there is none
	ended    bool
}

// openOrdered returns a source with the start and the filters of config. opening bounds the
// call, ctx the source, which makes its consumer again up to resets times without a message
// since, below 0 without a limit.
func (c *Client) openOrdered(ctx, opening context.Context, config jetstream.ConsumerConfig, resets int) (*ordered, error) {
	config.InactiveThreshold = inactive
	o := &ordered{client: c, ctx: ctx, config: config, most: resets, resets: resets}
	if err := o.open(opening); err != nil {
		o.end()
		return nil, err
	}
	// The body of the loop may not return, as when it writes to a pipe that nobody reads.
	o.release = context.AfterFunc(ctx, o.end)
	return o, nil
}

// open creates a consumer. An account that imports the API of the log cannot pull from it,
// since its name is random: then NATS pushes, once it knows who listens.
func (o *ordered) open(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return context.Canceled
	}
	c := o.client
	options := logread.Options{Config: o.config, Messages: pullMessages, Bytes: pullBytes, Heartbeat: c.heartbeat}
	options.Config.Name = readerName()
	if c.importsLog() {
		options.Messages = 0
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	consumer, err := c.reader(ctx, options)
	if err != nil {
		return err
	}
	o.consumer = consumer
	for err == nil && c.importsLog() && !consumer.CachedInfo().PushBound {
		if err = pause(ctx, poll); err == nil {
			_, err = consumer.Info(ctx)
		}
	}
	return cmp.Or(c.unheard(ctx), err)
}

// pause waits for a time, or fails with ctx's error once ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// unheard returns the error of a consumer whose messages nobody can receive, once ctx has
// ended because of its deadline.
func (c *Client) unheard(ctx context.Context) error {
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return nil
	}
	return ErrUnavailable.With("the log is not delivered to the inboxes of this connection (%s>): import that subject as a stream from the account of the log, or connect with the inbox prefix that is imported (--inbox-prefix, inbox_prefix of a NATS context, nats.CustomInboxPrefix)", c.denials.inboxes)
}

func (o *ordered) next(ctx context.Context) (delivery, error) {
	for {
		seq, m, err := o.consumer.Next(ctx)
		switch {
		case err == nil:
			o.config.OptStartSeq = seq + 1
			o.resets = o.most
			return delivery{subject: m.Subject, headers: m.Header, data: m.Data, seq: seq}, nil
		case ctx.Err() != nil:
			return delivery{}, ctx.Err()
		case errors.Is(err, logread.ErrStalled):
			return delivery{}, ErrUnavailable.With("the log stops, since flow control is not answered: import $JS.FC.%s.> from the account of lapse's clients, with a permission to publish there", o.client.log().Name)
		}
		if o.most == 0 {
			return delivery{}, err
		}
		if err := o.reset(ctx); err != nil {
			return delivery{}, err
		}
	}
}

// reset makes the consumer again after a gap. It tries until it succeeds, or no reset
// remains: NATS and lapse restart.
func (o *ordered) reset(ctx context.Context) error {
	nc, err := o.client.nc, nats.ErrTimeout
	for ; o.resets != 0; o.resets-- {
		o.mu.Lock()
		o.stop()
		o.consumer = nil
		o.mu.Unlock()
		for err = nil; err == nil && !nc.IsConnected() && !nc.IsClosed(); {
			err = pause(ctx, poll) // a request would be sent later, when nobody waits for it
		}
		if err == nil {
			err = o.open(ctx)
		}
		refused, ok := errors.AsType[*jetstream.APIError](err)
		if err == nil || ctx.Err() != nil || nc.IsClosed() || ok && refused.Code == 400 {
			return err
		}
		if err := pause(ctx, o.client.heartbeat); err != nil {
			return err
		}
	}
	return err
}

// stop deletes the consumer. The caller holds mu.
func (o *ordered) stop() {
	if o.consumer != nil {
		o.client.drop(o.ctx, o.consumer)
	}
}

// end stops for good.
func (o *ordered) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.ended = true
		o.stop()
	}
}

func (o *ordered) done(delivery) error { return nil }

func (o *ordered) close() {
	o.release()
	o.end()
}
