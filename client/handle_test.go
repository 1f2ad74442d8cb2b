package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// TestHandleKeepsOrderPerDocument: workers handle different documents at the same time,
// and the events of each document in order.
func TestHandleKeepsOrderPerDocument(t *testing.T) {
	s := newStandin(t).log()
	const documents, rounds, workers = 8, 12, 4
	for range rounds {
		for i := range documents {
			s.created("orders", fmt.Sprint(i))
		}
	}
	for name, opts := range map[string][]client.HandleOption{"durable": {client.Durable("d")}, "ordered": nil} {
		var mu sync.Mutex
		seen := make(map[string][]uint64)
		running, most := 0, 0
		together := make(chan struct{}) // closed when two workers have run at once
		err := s.client().Handle(t.Context(), func(ctx context.Context, e *client.Event) error {
			mu.Lock()
			seen[e.ID] = append(seen[e.ID], e.Seq)
			if running++; running == 2 && most < 2 {
				close(together)
			}
			most = max(most, running)
			mu.Unlock()
			// Pulls grow from one event, so the first events may be alone in flight.
			if e.Seq > documents {
				select {
				case <-together:
				case <-time.After(patience):
					return errors.New("no other worker handles an event")
				}
			}
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		}, append(opts, client.Workers(workers), client.FromStart(), client.UntilNow(), client.Poison(1, func(_ context.Context, _ *client.Event, err error) error { return err }))...)
		if err != nil || len(seen) != documents || most > workers {
			t.Errorf("%s: %d documents, %d at once, %v", name, len(seen), most, err)
		}
		for id, seqs := range seen {
			if len(seqs) != rounds || !slices.IsSorted(seqs) {
				t.Errorf("%s: document %s: %v", name, id, seqs)
			}
		}
	}
	if got := read(t, s.client(), 0, client.Durable("d"), client.UntilNow()); got != "" {
		t.Errorf("handled and not acknowledged: %s", got)
	}
}

// TestHandleFailingDocument: a document whose event fails, with more events than a pull has
// waiting for it, delays no other one, neither at the start nor when all comes again.
func TestHandleFailingDocument(t *testing.T) {
	s := newStandin(t).log()
	for life := range 2 {
		const behind = 300
		for range behind {
			s.created("orders", "bad")
		}
		for i := range 5 {
			s.created("orders", fmt.Sprint("good-", life, i))
		}
		var mu sync.Mutex
		var good []string
		ended := errors.New("all others are handled")
		ctx, cancel := context.WithCancelCause(t.Context())
		err := s.client().Handle(ctx, func(_ context.Context, e *client.Event) error {
			mu.Lock()
			defer mu.Unlock()
			if e.ID == "bad" {
				if e.Seq != 1 {
					t.Errorf("event %d is handled before event 1", e.Seq)
				}
				return errors.New("bad luck")
			}
			if good = append(good, e.ID); len(good) == 5 {
				cancel(ended)
			}
			return nil
		}, client.Durable("d"), client.FromStart(), client.Workers(1))
		if !errors.Is(err, ended) || len(good) != 5 {
			t.Errorf("life %d: %q, %v", life, good, err)
		}
	}
}

// TestHandleCollectionEventAlone: an event without a document waits for all events before
// it, and all after it wait for it.
func TestHandleCollectionEventAlone(t *testing.T) {
	s := newStandin(t).log()
	for range 5 {
		for i := range 5 {
			s.created("orders", fmt.Sprint(i))
		}
		s.happen(schema.Event{Type: schema.CollectionReplaced, Collection: "orders", Body: []byte(`{}`)})
	}
	var mu sync.Mutex
	running, done := 0, 0
	err := s.client().Handle(t.Context(), func(_ context.Context, e *client.Event) error {
		mu.Lock()
		running++
		if e.ID == "" && (running != 1 || done != int(e.Seq)-1) {
			t.Errorf("event %d is handled beside %d others, after %d", e.Seq, running-1, done)
		}
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		running--
		done++
		return nil
	}, client.Workers(4), client.FromStart(), client.UntilNow())
	if err != nil || done != 30 {
		t.Errorf("%d handled, %v", done, err)
	}
}

// TestHandlePoisonCountsDeliveries: where the user may not edit the consumer, an event
// during which n readers ended is not handled again; the event after it, which those
// readers had too, is handled.
func TestHandlePoisonCountsDeliveries(t *testing.T) {
	s := newStandin(t).log()
	for _, id := range []string{"a", "b", "kills", "c", "d", "e"} {
		s.created("orders", id)
	}
	// Each reader ends in the body of "kills", as in a crash.
	for _, want := range []int{3, 1, 1} {
		got := read(t, s.client(), want, client.Durable("d"), client.FromStart())
		if !strings.HasSuffix(got, "3 DocumentCreated orders/kills") {
			t.Fatal(got)
		}
	}
	c := s.as("fixed")
	var got []string
	err := c.Handle(t.Context(), func(_ context.Context, e *client.Event) error {
		got = append(got, e.ID)
		return nil
	}, client.Durable("d"), client.UntilSeq(6), client.Poison(3, func(_ context.Context, e *client.Event, err error) error {
		why, _, _ := strings.Cut(err.Error(), ": nats: ")
		got = append(got, e.ID+": "+why)
		return nil
	}))
	if want := "kills: event 3 was delivered 4 times, and its tries cannot be counted: this user may not edit the consumer, c, d, e"; err != nil || strings.Join(got, ", ") != want {
		t.Errorf("got %s, %v, want %s", strings.Join(got, ", "), err, want)
	}
}

// TestHandleEnds: a done context or an error of the poison handler ends Handle; unhandled
// events are redelivered, and an error caused by the end is no failure of the event.
func TestHandleEnds(t *testing.T) {
	s := newStandin(t).log()
	c := s.client()
	s.created("orders", "a")
	s.created("orders", "b")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	none := client.Poison(1, func(context.Context, *client.Event, error) error {
		t.Error("an event is poison because Handle ends")
		return nil
	})
	err := c.Handle(ctx, func(ctx context.Context, e *client.Event) error {
		if e.ID == "b" {
			cancel()
		}
		return ctx.Err()
	}, client.Durable("d"), client.FromStart(), none)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	broken := errors.New("nowhere to put it")
	err = c.Handle(t.Context(), func(context.Context, *client.Event) error { return errors.New("no") },
		client.Durable("d"), client.Poison(1, func(context.Context, *client.Event, error) error { return broken }))
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	if got := read(t, c, 0, client.Durable("d"), client.UntilNow()); got != "2 DocumentCreated orders/b" {
		t.Error(got)
	}
}
