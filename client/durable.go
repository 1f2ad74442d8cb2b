package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ackWait is how long after a reader vanished another one gets its event.
const ackWait = 30 * time.Second

// durable is the source of a feed whose position the server remembers.
//
// One message at a time is on its way: with more, those behind one that was
// left would be delivered before it. A loop body then costs a round trip more,
// which is the price of order.
type durable struct {
	messages jetstream.MessagesContext
	flush    func() error
	every    time.Duration // how often to say that the body is still at work

	current jetstream.Msg // given out and not done, or nil
	stop    chan struct{} // ends the goroutine that keeps current alive
}

func (c *Client) openDurable(ctx context.Context, f *feed, after uint64) (source, uint64, error) {
	consumer, err := c.durableConsumer(ctx, f, after)
	if err != nil {
		return nil, 0, err
	}
	// With one message, the next is asked for only when it is wanted: none is
	// left on its way when the loop ends.
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1))
	if err != nil {
		return nil, 0, err
	}
	info := consumer.CachedInfo()
	d := &durable{messages: messages, flush: c.nc.Flush, every: info.Config.AckWait / 3}
	return d, info.NumPending + uint64(info.NumAckPending), nil
}

// durableConsumer finds the consumer, or makes it.
func (c *Client) durableConsumer(ctx context.Context, f *feed, after uint64) (jetstream.Consumer, error) {
	stream, filters := c.database.LogStream(), f.filters(c.database)
	consumer, err := c.js.Consumer(ctx, stream, f.durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if after == 0 && f.fromSeq == 0 && f.fromTime == 0 {
			if after, err = c.lastSequence(ctx); err != nil {
				return nil, err
			}
		}
		config := jetstream.ConsumerConfig{
			Durable:        f.durable,
			FilterSubjects: filters,
			AckPolicy:      jetstream.AckExplicitPolicy,
			AckWait:        ackWait,
			MaxAckPending:  1,
		}
		config.DeliverPolicy, config.OptStartSeq, config.OptStartTime = f.begin(after)
		consumer, err = c.js.CreateConsumer(ctx, stream, config)
		if errors.Is(err, jetstream.ErrConsumerExists) { // somebody was faster
			consumer, err = c.js.Consumer(ctx, stream, f.durable)
		}
	}
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		return nil, ErrBadRequest.With("the consumer %q was made by another program: choose another durable name", f.durable)
	}
	if err != nil {
		return nil, err
	}
	config := consumer.CachedInfo().Config
	if config.AckPolicy != jetstream.AckExplicitPolicy || config.MaxAckPending != 1 {
		return nil, ErrBadRequest.With("the consumer %q was made by another program: choose another durable name", f.durable)
	}
	if had := filtersOf(config); !slices.Equal(had, filters) {
		config.FilterSubject, config.FilterSubjects = "", filters
		return c.js.UpdateConsumer(ctx, stream, config)
	}
	return consumer, nil
}

func filtersOf(config jetstream.ConsumerConfig) []string {
	if config.FilterSubject != "" {
		return []string{config.FilterSubject}
	}
	return slices.Sorted(slices.Values(config.FilterSubjects))
}

func (d *durable) next(ctx context.Context) (jetstream.Msg, error) {
	for {
		msg, err := d.messages.Next(jetstream.NextContext(ctx))
		if errors.Is(err, jetstream.ErrNoHeartbeat) {
			continue // the server is away; the next pull waits until it is back
		}
		if err != nil {
			return nil, err
		}
		d.keep(msg)
		return msg, nil
	}
}

// keep tells the server again and again that msg is worked on, so that a body
// may take as long as it needs and only a vanished reader loses its event.
func (d *durable) keep(msg jetstream.Msg) {
	stop := make(chan struct{})
	d.current, d.stop = msg, stop
	go func() {
		tick := time.NewTicker(d.every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_ = msg.InProgress() // if it doesn't arrive the event comes again
			}
		}
	}()
}

func (d *durable) done(msg jetstream.Msg) error {
	close(d.stop)
	d.current = nil
	return msg.Ack()
}

func (d *durable) close() {
	d.messages.Stop()
	if d.current != nil {
		close(d.stop)
		_ = d.current.Nak() // at once, instead of after ackWait
	}
	_ = d.flush() // the last acknowledgement too is to be there before the process ends
}
