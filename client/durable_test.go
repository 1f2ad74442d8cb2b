package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
)

func TestDurableRedeliversAfterPanic(t *testing.T) {
	t.Parallel()
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

// TestDurableAcknowledgesBodyAfterCancel: an event counts as handled when its loop body
// ends after its context was cancelled.
func TestDurableAcknowledgesBodyAfterCancel(t *testing.T) {
	t.Parallel()
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

// longAckWait is the ack wait of tests in which NATS must not redeliver: a busy machine may
// delay the reports of progress, which are due three times as often, by seconds.
const longAckWait = 6 * time.Second

// TestDurableConcurrentFirstUse: when several loops use a new name at once, those with
// the same filter as the creator of the consumer read, and all others fail.
func TestDurableConcurrentFirstUse(t *testing.T) {
	t.Parallel()
	s := newStandin(t).log()
	s.created("tickets", "a")
	s.expired("tickets", "a", "")
	s.expired("seats", "b", "")
	c := s.client()
	tickets, seats, expired := client.InCollection("tickets"), client.InCollection("seats"), client.OfType(client.DocumentExpired)
	choices := map[string][]client.FeedOption{"tickets": {tickets}, "expiries of tickets": {tickets, expired}, "expiries of both": {tickets, seats, expired}, "everything": nil}
	for round := range 5 {
		durable := fmt.Sprint("race", round)
		var loops sync.WaitGroup
		failures := make(chan string, 4*len(choices))
		for name, choice := range choices {
			for range 4 {
				loops.Go(func() {
					for _, err := range c.Changes(t.Context(), append(choice, client.Durable(durable), client.FromStart(), client.UntilNow())...) {
						if errors.Is(err, client.ErrBadRequest) && strings.Contains(err.Error(), strconv.Quote(durable)) && strings.Contains(err.Error(), "nats consumer rm LAPSE_main "+durable) {
							failures <- name
						} else if err != nil {
							t.Error(err)
						}
						break
					}
				})
			}
		}
		loops.Wait()
		close(failures)
		failed := make(map[string]int)
		for name := range failures {
			failed[name]++
		}
		if len(failed) != len(choices)-1 {
			t.Errorf("round %d: failed %v", round, failed)
		}
		for name, n := range failed {
			if n != 4 {
				t.Errorf("round %d: %d of 4 loops over %s failed", round, n, name)
			}
		}
	}
}

// TestDurableCreationReplyLost: a durable begins although NATS lost the reply to its creation,
// as in a cluster that does not know yet who waits for it; also with a context that ends much
// later.
func TestDurableCreationReplyLost(t *testing.T) {
	t.Parallel()
	s := newStandin(t).log()
	s.created("orders", "a")
	const prefix = "APP.API"
	lost := 0
	s.subscribe(prefix+".>", func(m *nats.Msg) {
		reply := m.Reply
		if strings.Contains(m.Subject, ".CONSUMER.CREATE.") {
			reply, lost = "nobody", lost+1
		}
		_ = s.nc.PublishRequest("$JS.API"+strings.TrimPrefix(m.Subject, prefix), reply, m.Data)
	})
	ctx := patient(t)
	c, err := client.New(s.nc, client.APIPrefix(prefix), client.WithTimeout(3*time.Second))
	check(t, err)
	for e, err := range c.Changes(ctx, client.Durable("d"), client.FromStart(), client.UntilSeq(1)) {
		if err != nil || e.Seq != 1 {
			t.Fatal(e, err)
		}
	}
	if ctx.Err() != nil || lost == 0 {
		t.Error(ctx.Err(), lost)
	}
}

// TestDurableFilterChangedWhileReading: when another program changes the filter, the loop
// yields no event outside its own filter, and leaves such events unacknowledged.
func TestDurableFilterChangedWhileReading(t *testing.T) {
	t.Parallel()
	s := newStandin(t).log()
	c := s.client()
	s.expired("tickets", "a", "")
	var failure error
	for x, err := range client.Expirations[session](t.Context(), c, client.InCollection("tickets"), client.Durable("bye"), client.FromStart()) {
		if err != nil {
			failure = err
			continue
		}
		if x.ID != "a" || x.Type != client.DocumentExpired {
			t.Fatalf("it yields %+v", x.Event)
		}
		consumer, err := s.js.Consumer(t.Context(), "LAPSE_main", "bye")
		check(t, err)
		config := consumer.CachedInfo().Config
		config.FilterSubjects = []string{"lapse.main.events.seats.*"}
		must(t)(s.js.UpdateConsumer(t.Context(), "LAPSE_main", config))
		s.created("seats", "b")
	}
	if !errors.Is(failure, client.ErrBadRequest) || !strings.Contains(failure.Error(), `"bye"`) {
		t.Error(failure)
	}
	if got := read(t, c, 0, client.InCollection("seats"), client.Durable("bye"), client.UntilNow()); got != "2 DocumentCreated seats/b" {
		t.Error(got)
	}
}

// TestDurableOrderAfterCrash: events of a crashed reader are redelivered after the ack
// wait, before newer events, also by a user who may not create consumers. One who may not get
// messages is told so.
func TestDurableOrderAfterCrash(t *testing.T) {
	for _, user := range []string{"app", "fixed", "numb"} {
		t.Run(user, func(t *testing.T) { durableOrderAfterCrash(t, user) })
	}
}

func durableOrderAfterCrash(t *testing.T, user string) {
	t.Parallel()
	s := newStandin(t).log()
	for i := range 60 {
		s.created([]string{"orders", "carts"}[i%2], fmt.Sprint(i))
	}
	wait := longAckWait
	if user == "numb" {
		wait = time.Hour // whom a redelivery of what is missing would leave without a question
	}
	opts := []client.FeedOption{client.InCollection("orders"), client.Durable("d"), client.AckWait(wait), client.FromStart()}
	nc := s.connect("app")
	crashing := s.over(nc)
	var last uint64
	for e, err := range crashing.Changes(t.Context(), opts...) {
		if err != nil {
			break
		}
		if last = e.Seq; last == 31 { // in the middle of a group
			nc.Close()
		}
	}
	s.created("orders", "newer")
	next := uint64(0)
	if user == "numb" {
		log, err := s.js.Stream(t.Context(), "LAPSE_main")
		check(t, err)
		check(t, log.UnpinConsumer(t.Context(), "d", "readers"))
	} else {
		opts = append(opts, client.UntilNow())
	}
	for e, err := range s.as(user).Changes(t.Context(), opts...) {
		if user == "numb" { // cannot learn whether an event is missing
			if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "$JS.API.STREAM.MSG.GET.LAPSE_main") {
				t.Error(e, err)
			}
			return
		}
		check(t, err)
		if next == 0 && e.Seq > last {
			t.Errorf("event %d was handled without an acknowledgement and does not come back", last)
		}
		if next != 0 && e.Seq != next {
			t.Errorf("event %d, want %d", e.Seq, next)
		}
		if next = e.Seq + 2; e.Seq == 59 {
			next = 61
		}
	}
	if next != 63 {
		t.Errorf("the last event is before %d", next)
	}
}

// TestDurableOrderWithSlowReader: a reader slower than the ack wait loses its pin to
// another one, which hands out nothing until the slow one has handled its events.
func TestDurableOrderWithSlowReader(t *testing.T) { both(t, durableOrderWithSlowReader) }

func durableOrderWithSlowReader(t *testing.T, with ...client.Option) {
	t.Parallel()
	s := newStandin(t).log()
	for i := range 10 {
		s.created("orders", fmt.Sprint(i))
	}
	opts := []client.FeedOption{client.Durable("d"), client.AckWait(longAckWait), client.FromStart(), client.UntilSeq(30)}
	pinned := func() string {
		consumer, err := s.js.Consumer(t.Context(), "LAPSE_main", "d")
		check(t, err)
		return consumer.CachedInfo().PriorityGroups[0].PinnedClientID
	}
	var mu sync.Mutex
	var got []uint64
	last := func() uint64 { mu.Lock(); defer mu.Unlock(); return got[len(got)-1] }
	slow := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		for e, err := range s.client(with...).Changes(t.Context(), opts...) {
			if err != nil {
				t.Error(err)
				break
			}
			if e.Seq == 5 {
				first := pinned()
				close(slow)
				for now := first; (now == "" || now == first) && last() != 30; now = pinned() {
					time.Sleep(20 * time.Millisecond)
				}
			}
			mu.Lock()
			got = append(got, e.Seq)
			mu.Unlock()
		}
	})
	<-slow
	for i := range 20 {
		s.created("orders", fmt.Sprint("new", i))
	}
	readers.Go(func() {
		for e, err := range s.client(with...).Changes(t.Context(), append(opts, client.UntilNow())...) {
			if err != nil {
				t.Error(err)
				break
			}
			mu.Lock()
			got = append(got, e.Seq)
			mu.Unlock()
		}
	})
	// The second reader ends with the last event, whichever reader has handled it.
	ended := make(chan struct{})
	go func() { readers.Wait(); close(ended) }()
	for deadline := time.Now().Add(30 * time.Second); last() != 30; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v", got)
		}
	}
	s.created("orders", "end") // ends the reader that did not get event 30
	<-ended
	if !slices.IsSorted(got) || len(slices.Compact(got)) != 30 {
		t.Errorf("handled %v", got)
	}
}

// TestDurableOfEarlierRelease: a consumer of an earlier release is read one event at a
// time, and an AckWait option that differs from its ack wait is refused.
func TestDurableOfEarlierRelease(t *testing.T) {
	t.Parallel()
	s := newStandin(t).log()
	s.created("orders", "a")
	s.created("orders", "b")
	if _, err := s.js.CreateConsumer(t.Context(), "LAPSE_main", jetstream.ConsumerConfig{Durable: "d", FilterSubjects: []string{"lapse.main.events.>"}, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: 30 * time.Second, MaxAckPending: 1, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 1}); err != nil {
		t.Fatal(err)
	}
	c := s.client()
	for _, err := range c.Changes(t.Context(), client.Durable("d"), client.AckWait(time.Second)) {
		if !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), "30s") || !strings.Contains(err.Error(), "nats consumer rm LAPSE_main d") {
			t.Error(err)
		}
	}
	if got := read(t, c, 0, client.Durable("d"), client.AckWait(30*time.Second), client.UntilNow()); got != "1 DocumentCreated orders/a, 2 DocumentCreated orders/b" {
		t.Error(got)
	}
	must(t)(s.js.CreateConsumer(t.Context(), "LAPSE_main", jetstream.ConsumerConfig{Durable: "theirs", AckPolicy: jetstream.AckAllPolicy, MaxAckPending: 1}))
	for _, err := range c.Changes(t.Context(), client.Durable("theirs")) {
		if !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("another program's: %v", err)
		}
	}
}
