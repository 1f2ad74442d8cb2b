package processor

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/versus"
)

// consumer reads a stream with an ordered consumer and only touches each message. A
// callback is the fastest way to do so.
type consumer struct {
	b      *testing.B
	js     jetstream.JetStream
	stream string
}

// round reads the first n messages of the stream.
func (c *consumer) round(n uint64) versus.Rate {
	clock := versus.Start()
	ordered, err := c.js.OrderedConsumer(context.Background(), c.stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		c.b.Fatal(err)
	}
	seen, bytes, done := uint64(0), 0, make(chan struct{})
	consuming, err := ordered.Consume(func(m jetstream.Msg) {
		seen++
		bytes += len(m.Headers().Get(schema.HeaderTime)) + len(m.Data())
		if seen == n {
			close(done)
		}
	}, jetstream.PullMaxMessagesWithBytesLimit(eventlog.ReadAhead, eventlog.ReadAheadBytes))
	if err != nil {
		c.b.Fatal(err)
	}
	<-done
	rate := clock.Stop(int(n))
	consuming.Stop()
	<-consuming.Closed()
	if bytes == 0 {
		c.b.Fatal("the messages are empty")
	}
	return rate
}
