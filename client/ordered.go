package client

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/lapsedb/lapse/schema"
)

const (
	// A consumer that nobody reads is gone after this long.
	inactive = 30 * time.Second

	// What is asked for at once: enough to read fast, little enough that large
	// documents don't fill the memory.
	pullMessages = 1000
	pullBytes    = 16 << 20

	// JetStream finds a time by its own time stamps, which may differ from log
	// time by the clocks' difference and the time to append. So begin earlier
	// and leave out what is too old by log time.
	timeSlack = 5 * time.Minute
)

// ordered is the source of a feed that nobody remembers: an ordered consumer,
// which begins again behind the last message after every gap.
type ordered struct {
	messages jetstream.MessagesContext
	release  func() bool
}

// openOrdered also returns how many messages wait. after is the sequence after
// which to begin if f says nothing else; opening bounds the call and ctx the
// source.
func (c *Client) openOrdered(ctx, opening context.Context, f *feed, after uint64) (source, uint64, error) {
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
	if err != nil {
		return nil, 0, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes))
	if err != nil {
		return nil, 0, err
	}
	// While it begins again it looks at no context, so it has to be stopped.
	release := context.AfterFunc(ctx, messages.Stop)
	return ordered{messages, release}, consumer.CachedInfo().NumPending, nil
}

// begin is where a new consumer begins. "From now on" is a sequence too: a
// consumer told to deliver what is new would, made anew after a reconnect,
// leave out what happened meanwhile.
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

func (o ordered) next(ctx context.Context) (jetstream.Msg, error) {
	return o.messages.Next(jetstream.NextContext(ctx))
}

func (o ordered) done(jetstream.Msg) error { return nil }

func (o ordered) close() {
	o.release()
	o.messages.Stop()
}
