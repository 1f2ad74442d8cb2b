package embedded_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/attack"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// allEvents are the subjects of the events in the log of a fixture.
var allEvents = attack.EventsOf(db)

func TestOrderedConsumer(t *testing.T) { newServers(t, testOrderedConsumer) }

func testOrderedConsumer(t *testing.T, f *fixture) {
	js, _ := jetstream.New(f.client)
	c, err := js.OrderedConsumer(ctx(t), log, jetstream.OrderedConsumerConfig{FilterSubjects: []string{db.Events() + "*.DocumentExpired"}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Next(jetstream.FetchMaxWait(patience))
	if err != nil || m.Subject() != allEvents[3] || m.Headers().Get("Lapse-Time") != "1003" {
		t.Fatalf("got %+v, %v", m, err)
	}

	// Consume continues when its consumer is lost.
	c, err = js.OrderedConsumer(ctx(t), log, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 64)
	cc, err := c.Consume(func(m jetstream.Msg) { got <- m.Subject() }, jetstream.PullExpiry(time.Second), jetstream.PullHeartbeat(500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { cc.Stop(); <-cc.Closed() }()
	want(t, got, allEvents...)
	s, _ := f.JS.Stream(ctx(t), log)
	l := s.ConsumerNames(ctx(t))
	for name := range l.Name() {
		// nats.go deletes the consumer of Next, at some time.
		if err := s.DeleteConsumer(ctx(t), name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			t.Fatal(err)
		}
	}
	if _, err := f.JS.Publish(ctx(t), appendTo("orders.DocumentDeleted"), nil); err != nil {
		t.Fatal(err)
	}
	want(t, got, "lapse.main.events.orders.DocumentDeleted")
}

func TestDurablePullConsumer(t *testing.T) { newServers(t, testDurablePullConsumer) }

func testDurablePullConsumer(t *testing.T, f *fixture) {
	js, _ := jetstream.New(f.client)
	c, err := js.CreateOrUpdateConsumer(ctx(t), log, jetstream.ConsumerConfig{
		Durable: "reader", AckPolicy: jetstream.AckExplicitPolicy, AckWait: patience, FilterSubject: db.Events() + "orders.>",
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Fetch(2)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for m := range b.Messages() {
		got = append(got, m.Subject())
		if err := m.DoubleAck(ctx(t)); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, allEvents[:2]) {
		t.Fatal(got, b.Error())
	}

	// Another process of the same subscriber continues where this one stopped.
	if c, err = js.Consumer(ctx(t), log, "reader"); err != nil {
		t.Fatal(err)
	}
	m, err := c.Next()
	if err != nil || m.Subject() != allEvents[3] {
		t.Fatalf("got %+v, %v", m, err)
	}
	if err := m.Ack(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all is acknowledged", func() bool {
		i, err := c.Info(ctx(t))
		return err == nil && i.NumAckPending == 0 && i.NumPending == 0 && i.AckFloor.Stream == 4
	})
	if b, err := c.FetchNoWait(1); err != nil {
		t.Fatal(err)
	} else if m, ok := <-b.Messages(); ok {
		t.Fatalf("got %s again", m.Subject())
	}
	if err := js.DeleteConsumer(ctx(t), log, "reader"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Consumer(ctx(t), log, "reader"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Fatal(err)
	}
	// A pull from a missing consumer is answered at once.
	start := time.Now()
	if m, err := c.Next(jetstream.FetchMaxWait(2 * patience)); err == nil || time.Since(start) > patience {
		t.Fatalf("got %+v, %v after %s", m, err, time.Since(start))
	}
}

// TestLongFeed: over several windows of flow control and many batches, every event
// arrives once and in order.
func TestLongFeed(t *testing.T) { newServers(t, testLongFeed) }

func testLongFeed(t *testing.T, f *fixture) {
	const n = 20_000
	body := make([]byte, 1000)
	for range n {
		if _, err := f.JS.PublishAsync(appendTo("orders.DocumentCreated"), body, jetstream.WithStallWait(patience)); err != nil {
			t.Fatal(err)
		}
	}
	<-f.JS.PublishAsyncComplete()

	legacy, _ := f.client.JetStream()
	js, _ := jetstream.New(f.client)
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
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Unsubscribe()
		} else {
			c, err := js.OrderedConsumer(ctx(t), log, jetstream.OrderedConsumerConfig{})
			if err != nil {
				t.Fatal(err)
			}
			cc, err := c.Consume(func(m jetstream.Msg) {
				md, _ := m.Metadata()
				see(md.Sequence.Stream)
			})
			if err != nil {
				t.Fatal(err)
			}
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
