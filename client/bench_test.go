package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
)

// measured counts the runs of BenchmarkDurable; each has its own collection.
var measured int

// BenchmarkDurable reads the same events from lapse serve alternately with Durable and
// with a durable of nats.go. ratio is the speed of Durable divided by that of nats.go.
func BenchmarkDurable(b *testing.B) {
	const events = 20_000
	c, err := client.Connect(address)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	ctx := b.Context()
	measured++
	name := fmt.Sprint("measured", measured)
	coll, err := c.CreateCollection(ctx, name)
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; i < events; i += client.MaxBatch {
		batch := coll.Batch()
		for j := range client.MaxBatch {
			batch.Upsert(fmt.Sprint(i+j), session{Requests: j})
		}
		if results, err := batch.Run(ctx); err != nil || results.Err() != nil {
			b.Fatal(err, results.Err())
		}
	}
	var ours, plain time.Duration
	round := 0
	for b.Loop() {
		round++
		ours += timed(b, func() { readDurable(b, c, name, fmt.Sprint(name, "-ours", round), events) })
		plain += timed(b, func() { readPlain(b, c.Conn(), name, fmt.Sprint(name, "-plain", round), events) })
	}
	perSecond := func(d time.Duration) float64 { return float64(events*round) / d.Seconds() }
	b.ReportMetric(perSecond(ours), "events/s")
	b.ReportMetric(perSecond(plain), "nats.go-events/s")
	b.ReportMetric(perSecond(ours)/perSecond(plain), "ratio")
}

func timed(b *testing.B, read func()) time.Duration {
	b.Helper()
	start := time.Now()
	read()
	return time.Since(start)
}

func readDurable(b *testing.B, c *client.Client, coll, name string, events int) {
	n := 0
	for _, err := range c.Changes(b.Context(), client.InCollection(coll), client.OfType(client.DocumentCreated), client.Durable(name), client.FromStart(), client.UntilNow()) {
		if err != nil {
			b.Fatal(err)
		}
		n++
	}
	if n != events {
		b.Fatalf("%d events, want %d", n, events)
	}
}

// readPlain reads as the nats.go manual does: a callback acknowledges each message.
func readPlain(b *testing.B, nc *nats.Conn, coll, name string, events int) {
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	consumer, err := js.CreateConsumer(b.Context(), "LAPSE_main", jetstream.ConsumerConfig{
		Durable: name, FilterSubject: "lapse.main.events." + coll + ".DocumentCreated", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		b.Fatal(err)
	}
	done, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	n := 0
	reading, err := consumer.Consume(func(msg jetstream.Msg) {
		if err := msg.Ack(); err != nil {
			b.Error(err)
		}
		if n++; n == events {
			cancel()
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	defer reading.Stop()
	<-done.Done()
	if n != events {
		b.Fatalf("%d events, want %d", n, events)
	}
}
