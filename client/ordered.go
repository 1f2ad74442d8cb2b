package client

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/lapsedb/lapse/schema"
)

const (
	// The server deletes a consumer that nobody has read for this long.
	inactive = 30 * time.Second

	// The size of a pull: enough to read fast, and bounded in memory for large documents.
	pullMessages = 1000
	pullBytes    = 16 << 20

	// JetStream searches by its own timestamps, which differ from log time by the skew of
	// the clocks and the time to append. So start earlier and skip events by log time.
	timeSlack = 5 * time.Minute
)

// ordered is the source of a feed without a stored position: an ordered consumer, which
// is recreated behind the last message after every gap.
type ordered struct {
	messages jetstream.MessagesContext
	release  func() bool
}

// openOrdered returns a source that begins behind sequence after unless f says otherwise,
// nil if there is nothing to read. opening bounds the call, ctx the source.
func (c *Client) openOrdered(ctx, opening context.Context, f *feed, after uint64) (source, error) {
	config := jetstream.OrderedConsumerConfig{
		NamePrefix:        schema.ReaderConsumer + nuid.Next(),
		FilterSubjects:    f.filters(c.database),
		InactiveThreshold: inactive,
	}
	config.DeliverPolicy, config.OptStartSeq, config.OptStartTime = f.begin(after)
	if f.untilNow {
		config.MaxResetAttempts = 3 // somebody waits for the end
	}
	consumer, err := c.js.OrderedConsumer(opening, c.database.LogStream(), config)
	if err != nil || f.untilNow && consumer.CachedInfo().NumPending == 0 {
		return nil, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes))
	if err != nil {
		return nil, err
	}
	// It ignores contexts while it is recreated, so it has to be stopped.
	release := context.AfterFunc(ctx, messages.Stop)
	return ordered{messages, release}, nil
}

// begin returns where a consumer begins. "From now" is a sequence, too: with
// DeliverNewPolicy, a consumer that is recreated after a reconnect would skip events.
func (f *feed) begin(after uint64) (jetstream.DeliverPolicy, uint64, *time.Time) {
	switch {
	case f.fromTime != 0:
		t := time.UnixMilli(f.fromTime).Add(-timeSlack)
		return jetstream.DeliverByStartTimePolicy, 0, &t
	case f.fromSeq != 0:
		return jetstream.DeliverByStartSequencePolicy, f.fromSeq, nil
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
	o.messages.Stop()
}
