package client

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// inactive is the time without a reader after which the server deletes a consumer.
	inactive = 30 * time.Second

	// maxResets is how often a feed that ends is begun again without a message since.
	maxResets = 3

	// Limits of a pull: enough to read fast, and bounded in memory for large documents.
	pullMessages = 1000
	pullBytes    = 16 << 20

	// timeSlack: JetStream searches by its own timestamps, which differ from log time by
	// clock skew and the duration of an append. So start earlier and skip by log time.
	timeSlack = 5 * time.Minute
)

// ordered is the source of a feed without a stored position: an ordered consumer, which
// nats.go recreates after the last message after every gap.
type ordered struct {
	messages jetstream.MessagesContext
	release  func() bool
	end      func() // deletes the consumer, once
}

// openOrdered returns a source that begins after sequence after, unless f has a From
// option. opening bounds the call, ctx the source.
func (c *Client) openOrdered(ctx, opening context.Context, f *feed, after uint64) (source, error) {
	if c.imported() {
		config := jetstream.ConsumerConfig{FilterSubjects: f.filters(c.database)}
		config.DeliverPolicy, config.OptStartSeq, config.OptStartTime = f.begin(after)
		p, err := c.openPushed(ctx, opening, config, f.untilNow)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
	config := jetstream.OrderedConsumerConfig{
		NamePrefix:        readerName(),
		FilterSubjects:    f.filters(c.database),
		InactiveThreshold: inactive,
	}
	config.DeliverPolicy, config.OptStartSeq, config.OptStartTime = f.begin(after)
	if f.untilNow {
		config.MaxResetAttempts = maxResets // the caller waits for the end
	}
	consumer, err := reader(c, opening, func(ctx context.Context) (jetstream.Consumer, error) {
		return c.js.OrderedConsumer(ctx, c.database.LogStream(), config)
	})
	if err != nil {
		return nil, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes))
	if err != nil {
		c.drop(ctx, consumer.CachedInfo())
		return nil, err
	}
	end := sync.OnceFunc(func() {
		messages.Stop()
		c.drop(ctx, consumer.CachedInfo())
	})
	// The iterator ignores contexts while it is recreated, so stop it. The body of the loop
	// may not return, as when it writes to a pipe that nobody reads.
	return ordered{messages, context.AfterFunc(ctx, end), end}, nil
}

// begin returns the start of a consumer. "From now" is a sequence, too: with
// DeliverNewPolicy, a consumer that is recreated after a reconnect would skip events.
func (f *feed) begin(after uint64) (jetstream.DeliverPolicy, uint64, *time.Time) {
	switch {
	case f.fromTime != nil:
		t := time.UnixMilli(*f.fromTime).Add(-timeSlack)
		return jetstream.DeliverByStartTimePolicy, 0, &t
	case f.fromSeq != nil:
		return jetstream.DeliverByStartSequencePolicy, *f.fromSeq, nil
	}
	return jetstream.DeliverByStartSequencePolicy, after + 1, nil
}

func (o ordered) next(ctx context.Context) (delivery, error) {
	msg, err := o.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return delivery{}, err
	}
	return deliveryOf(msg)
}

func (o ordered) done(delivery) error { return nil }

func (o ordered) close() {
	o.release()
	o.end()
}
