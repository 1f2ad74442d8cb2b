package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// ackWait is the time after which the event of a vanished reader is redelivered.
const ackWait = 30 * time.Second

// durable is the source of a feed whose position the server stores.
//
// Only one message is in flight: with more, messages behind one that is redelivered
// would come before it. Order costs a round trip for each loop body.
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
	// With one message, the next is pulled only on demand: none is in flight when the
	// loop ends.
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1))
	if err != nil {
		return nil, 0, err
	}
	info := consumer.CachedInfo()
	d := &durable{messages: messages, flush: c.nc.Flush, every: info.Config.AckWait / 3}
	return d, info.NumPending + uint64(info.NumAckPending), nil
}

// durableConsumer returns the consumer, and creates it if it does not exist. It never
// changes an existing one, from which another loop may read.
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
		if consumer, err = c.js.CreateConsumer(ctx, stream, config); err != nil {
			// A concurrent first start may have created it.
			if existing, missing := c.js.Consumer(ctx, stream, f.durable); missing == nil {
				consumer, err = existing, nil
			}
		}
	}
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		return nil, ErrBadRequest.With("the consumer %q belongs to another program: choose another durable name", f.durable)
	}
	if err != nil {
		return nil, err
	}
	config := consumer.CachedInfo().Config
	if config.AckPolicy != jetstream.AckExplicitPolicy || config.MaxAckPending != 1 {
		return nil, ErrBadRequest.With("the consumer %q belongs to another program: choose another durable name", f.durable)
	}
	if had := filtersOf(c.database, config); !slices.Equal(had, canonical(c.database, filters)) {
		return nil, ErrBadRequest.With("the durable %q reads %.500s, and this loop chooses %.500s: choose another durable name, or delete the consumer if no loop reads it any more (nats consumer rm %s %s)",
			f.durable, strings.Join(had, " "), strings.Join(filters, " "), stream, f.durable)
	}
	return consumer, nil
}

// filtersOf returns the canonical filters of a consumer.
func filtersOf(db schema.DatabaseName, config jetstream.ConsumerConfig) []string {
	if len(config.FilterSubjects) > 0 {
		return canonical(db, config.FilterSubjects)
	}
	return canonical(db, []string{cmp.Or(config.FilterSubject, db.Events()+">")})
}

// canonical maps filters that choose the same events to one form: an event subject has
// two tokens behind its prefix, so "orders.>" is "orders.*".
func canonical(db schema.DatabaseName, filters []string) []string {
	same := make([]string, 0, len(filters))
	for _, filter := range filters {
		if head, open := strings.CutSuffix(filter, ">"); open && head != db.Events() {
			filter = head + "*"
		} else if filter == db.Events()+"*.*" {
			filter = db.Events() + ">"
		}
		same = append(same, filter)
	}
	slices.Sort(same)
	return slices.Compact(same)
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

// keep reports msg as in progress until it is done, so that a slow body keeps its event
// and only a vanished reader loses it.
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
