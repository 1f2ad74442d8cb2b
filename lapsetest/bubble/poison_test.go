package bubble_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/lapsetest/bubble"
	"github.com/nats-io/nats.go/jetstream"
)

// mailer is a program that handles the documents created in a collection, in several
// lives.
type mailer struct {
	t      *testing.T
	s      *bubble.Server
	limit  int
	events []string
}

// live runs the program until its end: by do, which is called with each event, or after a
// minute. A crash closes the connection, so that nothing is acknowledged, handed back or
// written any more.
func (m *mailer) live(do func(ctx context.Context, id string, crash func()) error) {
	m.t.Helper()
	nc := m.s.Connect(m.t)
	c, err := client.New(nc)
	check(m.t, err)
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	err = c.Handle(ctx, func(ctx context.Context, e *client.Event) error {
		m.events = append(m.events, e.ID)
		return do(ctx, e.ID, func() { nc.Close(); cancel() })
	}, client.Durable("mailer"), client.FromStart(), client.OfType(client.DocumentCreated),
		client.Poison(m.limit, func(_ context.Context, e *client.Event, err error) error {
			line, _, _ := strings.Cut(err.Error(), "\n")
			m.events = append(m.events, fmt.Sprintf("%s is poison: %s", e.ID, line))
			return nil
		}))
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		m.t.Fatal(err)
	}
	m.events = append(m.events, "|")
}

func (m *mailer) want(events ...string) {
	m.t.Helper()
	if !slices.Equal(m.events, events) {
		m.t.Errorf("the lives are\n%s, want\n%s", strings.Join(m.events, " "), strings.Join(events, " "))
	}
}

// write writes documents, and returns a mailer that puts one aside after limit tries.
func write(t *testing.T, s *bubble.Server, limit int, ids ...string) *mailer {
	t.Helper()
	c := s.Client(t)
	letters, err := c.CreateCollection(t.Context(), "letters")
	check(t, err)
	for _, id := range ids {
		_, err := client.Create(t.Context(), letters, id, session{})
		check(t, err)
	}
	return &mailer{t: t, s: s, limit: limit}
}

func crashAt(poison string) func(context.Context, string, func()) error {
	return func(ctx context.Context, id string, crash func()) error {
		if id == poison {
			crash()
		}
		return ctx.Err()
	}
}

// TestPoisonCountsNoEnds: the ends of Handle are no tries, however often an event is
// handed back.
func TestPoisonCountsNoEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		m := write(t, s, 5, "a", "b")
		for range 7 {
			m.live(func(ctx context.Context, _ string, _ func()) error {
				<-ctx.Done()
				return ctx.Err()
			})
		}
		m.live(crashAt(""))
		m.want("a", "|", "a", "|", "a", "|", "a", "|", "a", "|", "a", "|", "a", "|", "a", "b", "|")
	})
}

// TestPoisonCountsFailuresBeforeAnEnd: tries that failed count in the next life.
func TestPoisonCountsFailuresBeforeAnEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		m := write(t, s, 4, "a", "b")
		fail := func(times int) func(context.Context, string, func()) error {
			return func(ctx context.Context, id string, _ func()) error {
				if id != "a" {
					return nil
				}
				if times--; times < 0 {
					<-ctx.Done()
				}
				return errors.New("full")
			}
		}
		m.live(fail(2))
		m.live(fail(1))
		m.live(fail(9))
		m.want("a", "a", "a", "|", "a", "a", "|", "a", "a is poison: full", "b", "|")
	})
}

// TestPoisonCountsCrashes: an event with which the process crashed as often as it may be
// tried is put aside without a call.
func TestPoisonCountsCrashes(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		m := write(t, s, 3, "a", "kills", "b", "c")
		for range 4 {
			m.live(crashAt("kills"))
		}
		m.want("a", "kills", "|", "kills", "|", "kills", "|",
			"kills is poison: event 4: the process ended while its handler ran, in try 3 of 3", "b", "c", "|")
	})
}

// TestPoisonTriesWhatWasPrefetched: with one try, neither the events that a crashed process
// had, too, nor the one with which it may have crashed are put aside without a try.
func TestPoisonTriesWhatWasPrefetched(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		m := write(t, s, 1, "a", "b", "c", "d", "kills", "e", "f", "g", "h")
		for range 3 {
			m.live(crashAt("kills"))
		}
		m.want("a", "b", "c", "d", "kills", "|", "kills", "|",
			"kills is poison: event 7: the process ended while its handler ran, in try 1 of 1", "e", "f", "g", "h", "|")
	})
}

// TestEventInProgress: a loop body may take longer than the ack wait without a redelivery.
func TestEventInProgress(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		write(t, s, 1, "a")
		js, err := jetstream.New(s.Connect(t))
		check(t, err)
		ctx := t.Context()
		for _, err := range s.Client(t).Changes(ctx, client.Durable("slow"), client.FromStart(), client.UntilNow()) {
			check(t, err)
			time.Sleep(time.Minute)
			consumer, err := js.Consumer(ctx, "LAPSE_main", "slow")
			check(t, err)
			if info := consumer.CachedInfo(); info.NumRedelivered != 0 || info.NumAckPending == 0 {
				t.Errorf("%+v", info)
			}
		}
	})
}
