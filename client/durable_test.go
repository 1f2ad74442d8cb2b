package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
)

func TestDurable(t *testing.T) {
	s := newStandin(t).log()
	c := s.client()
	for _, id := range []string{"a", "b", "c", "d"} {
		s.created("orders", id)
	}
	s.internal()
	name := client.Durable("mailer")
	const a, b, c_, d = "1 DocumentCreated orders/a", "2 DocumentCreated orders/b", "3 DocumentCreated orders/c", "4 DocumentCreated orders/d"

	// Left in the body of b: b comes again, at once and before c.
	for range 2 {
		if got := read(t, c, 2, name, client.FromStart()); got != a+", "+b && got != b+", "+c_ {
			t.Error(got)
		}
	}
	// Where to begin counts only the first time.
	if got := read(t, c, 0, name, client.FromStart(), client.UntilNow()); got != c_+", "+d {
		t.Error(got)
	}
	if got := read(t, c, 0, name, client.UntilNow()); got != "" {
		t.Errorf("nothing new: %s", got)
	}
	// Another choice of events goes on from there.
	s.created("orders", "e")
	s.expired("orders", "a", "")
	if got := read(t, c, 0, name, client.OfType(client.DocumentExpired), client.UntilNow()); got != "7 DocumentExpired orders/a" {
		t.Error(got)
	}
	// A durable first used now begins now.
	if got := read(t, c, 0, client.Durable("new"), client.UntilNow()); got != "" {
		t.Error(got)
	}
	s.created("orders", "f")
	if got := read(t, c, 0, client.Durable("new"), client.UntilNow()); got != "8 DocumentCreated orders/f" {
		t.Error(got)
	}
}

func TestDurableGivesBackWhatPanicked(t *testing.T) {
	s := newStandin(t).log()
	c := s.client()
	s.created("orders", "a")
	func() {
		defer func() { _ = recover() }()
		for range c.Changes(t.Context(), client.Durable("d"), client.FromStart()) {
			panic("body")
		}
	}()
	if got := read(t, c, 1, client.Durable("d")); got != "1 DocumentCreated orders/a" {
		t.Error(got)
	}
}

// A body that ends after its context was cancelled has handled its event.
func TestDurableFinishesItsBody(t *testing.T) {
	s := newStandin(t).log()
	c := s.client()
	s.created("orders", "a")
	s.created("orders", "b")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, err := range c.Changes(ctx, client.Durable("d"), client.FromStart()) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			continue
		}
		cancel()
		time.Sleep(20 * time.Millisecond)
	}
	if got := read(t, c, 1, client.Durable("d")); got != "2 DocumentCreated orders/b" {
		t.Error(got)
	}
}

// A body may take longer than the server waits for an acknowledgement.
func TestDurableKeepsWhatItWorksOn(t *testing.T) {
	s := newStandin(t).log()
	c := s.client()
	name := client.Durable("slow")
	consumer, err := s.js.CreateConsumer(t.Context(), "LAPSE_main", jetstream.ConsumerConfig{
		Durable: "slow", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1, AckWait: 150 * time.Millisecond,
		FilterSubjects: []string{"lapse.main.events.>"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.created("orders", "a")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for _, err := range c.Changes(ctx, name, client.UntilNow()) {
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		info, err := consumer.Info(ctx)
		if err != nil || info.NumRedelivered != 0 || info.NumAckPending != 1 {
			t.Errorf("%+v, %v", info, err)
		}
	}
}

func TestDurableOfAnotherProgram(t *testing.T) {
	s := newStandin(t).log()
	_, err := s.js.CreateConsumer(t.Context(), "LAPSE_main", jetstream.ConsumerConfig{Durable: "theirs", AckPolicy: jetstream.AckAllPolicy})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range s.client().Changes(t.Context(), client.Durable("theirs")) {
		if !errors.Is(err, client.ErrBadRequest) {
			t.Error(err)
		}
	}
}
