package embedded_test

import (
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/attack"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// allEvents are the subjects of the events in the log of a fixture.
var allEvents = attack.EventsOf(db)

// TestLongFeed: over several windows of flow control and many batches, every event
// arrives once and in order.
func TestLongFeed(t *testing.T) { newServers(t, testLongFeed) }

func testLongFeed(t *testing.T, f *fixture) {
	const n = 20_000
	body := make([]byte, 1000)
	for range n {
		must(t)(f.JS.PublishAsync(appendTo("orders.DocumentCreated"), body, jetstream.WithStallWait(patience)))
	}
	<-f.JS.PublishAsyncComplete()

	legacy, _ := f.client.JetStream()
	js := jetStream(t, f.client)
	for _, how := range []string{"push", "pull"} {
		start := time.Now()
		done := make(chan uint64, 1)
		next := uint64(1)
		see := func(seq uint64) {
			if seq != next {
				t.Errorf("%s: %d after %d", how, seq, next-1)
			}
			if next = seq + 1; seq == n+4 {
				done <- seq
			}
		}
		if how == "push" {
			sub, err := legacy.Subscribe(db.Events()+">", func(m *nats.Msg) {
				md, _ := m.Metadata()
				see(md.Sequence.Stream)
			}, nats.BindStream(log), nats.OrderedConsumer())
			check(t, err)
			defer sub.Unsubscribe()
		} else {
			c, err := js.OrderedConsumer(ctx(t), log, jetstream.OrderedConsumerConfig{})
			check(t, err)
			cc, err := c.Consume(func(m jetstream.Msg) {
				md, _ := m.Metadata()
				see(md.Sequence.Stream)
			})
			check(t, err)
			defer func() { cc.Stop(); <-cc.Closed() }()
		}
		select {
		case <-done:
			t.Logf("%s: %.0f events/s", how, n/time.Since(start).Seconds())
		case <-time.After(patience):
			t.Fatalf("%s: stuck", how)
		}
	}
}

func want(t *testing.T, got <-chan string, all ...string) {
	t.Helper()
	for i, w := range all {
		select {
		case g := <-got:
			if g != w {
				t.Fatalf("event %d is %s, not %s", i, g, w)
			}
		case <-time.After(patience):
			t.Fatalf("no event %d, %s", i, w)
		}
	}
}
