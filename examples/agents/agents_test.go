package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/examples/internal/manual"
	"github.com/lapsedb/lapse/examples/internal/server"
	"github.com/lapsedb/lapse/lapsetest/bubble"
)

const idle, warn = 30 * time.Minute, 5 * time.Minute

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, s *bubble.Server, settings ...client.PropertyOption) *Agents {
	t.Helper()
	a, err := OpenAgents(t.Context(), s.Client(t), settings...)
	check(t, err)
	return a
}

func say(t testing.TB, a *Agents, id, turn string) {
	t.Helper()
	_, _, err := a.Say(t.Context(), id, turn)
	check(t, err)
}

// wantKnown checks the turns of the live session, and what those before have handed over.
// It renews nothing.
func wantKnown(t testing.TB, a *Agents, id, turns, known string) {
	t.Helper()
	s, m, err := read(t.Context(), a.coll.Batch().Get(live+id).Get(memory+id))
	check(t, err)
	if got := strings.Join(s.Value.Turns, " "); got != turns || m.Value.Text != known {
		t.Errorf("%s has the turns %q and knows %q, want %q and %q", id, got, m.Value.Text, turns, known)
	}
}

// join is what a model would summarise.
func join(_ context.Context, known string, s Session) (string, error) {
	return strings.TrimSpace(known + " " + strings.Join(s.Turns, " ")), nil
}

// watch hands over until the returned function is called, which waits for the end.
func watch(t *testing.T, a *Agents, learn Learn) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if err := a.HandOver(ctx, learn); ctx.Err() == nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// TestHandOver: a session that is not used is handed over at its warning, once, although
// two programs watch, and the next one knows what it learned. Use puts that off.
func TestHandOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		a := open(t, s)
		defer watch(t, a, join)()
		defer watch(t, open(t, s), join)()
		say(t, a, "ann", "a")
		time.Sleep(idle - warn - time.Second)
		say(t, a, "ann", "b")
		time.Sleep(idle - warn - time.Second)
		wantKnown(t, a, "ann", "a b", "")
		_, _, err := a.Open(t.Context(), "ann")
		check(t, err)
		time.Sleep(idle - warn - time.Second)
		wantKnown(t, a, "ann", "a b", "")
		time.Sleep(2 * time.Second)
		wantKnown(t, a, "ann", "", "a b")
		say(t, a, "ann", "c")
		wantKnown(t, a, "ann", "c", "a b")
		time.Sleep(2 * idle)
		wantKnown(t, a, "ann", "", "a b c")
	})
}

// TestRenewedMeanwhile: use after the warning cancels the hand-over that has begun, and the
// session goes on with all that it knows. Its next warning hands it over.
func TestRenewedMeanwhile(t *testing.T) {
	for name, use := range map[string]func(testing.TB, *Agents){
		"turns b": func(t testing.TB, a *Agents) { say(t, a, "ann", "b") },
		"turns":   func(t testing.TB, a *Agents) { _, _, err := a.Open(t.Context(), "ann"); check(t, err) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T, s *bubble.Server) {
				a := open(t, s)
				var learned atomic.Int32
				defer watch(t, a, func(ctx context.Context, known string, s Session) (string, error) {
					learned.Add(1)
					time.Sleep(2 * time.Minute)
					return join(ctx, known, s)
				})()
				want := "a" + strings.TrimPrefix(name, "turns")
				say(t, a, "ann", "a")
				time.Sleep(idle - warn + time.Minute) // it is learning
				use(t, a)
				time.Sleep(idle - warn - time.Minute)
				wantKnown(t, a, "ann", want, "")
				if n := learned.Load(); n != 1 {
					t.Errorf("learned %d times", n)
				}
				time.Sleep(4 * time.Minute)
				wantKnown(t, a, "ann", "", want)
				if n := learned.Load(); n != 2 {
					t.Errorf("learned %d times", n)
				}
			})
		})
	}
}

// TestStale: a watcher that comes late asks no model about a session that was used since.
func TestStale(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		a := open(t, s)
		say(t, a, "ann", "a")
		time.Sleep(idle - time.Second)
		say(t, a, "ann", "b")
		defer watch(t, a, func(context.Context, string, Session) (string, error) {
			t.Error("it learns")
			return "", nil
		})()
		time.Sleep(time.Minute)
		wantKnown(t, a, "ann", "a b", "")
	})
}

// TestNothingIsLost: each turn is in the memory once and in order, although watchers and
// lapse crash and restart at random moments, learning fails and takes longer than a session
// lives, and users speak at all times.
func TestNothingIsLost(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(1, 2))
		draw := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return random.IntN(n)
		}
		a := open(t, s, client.DefaultTTL(40*time.Second), client.WarnBefore(20*time.Second))
		learn := func(ctx context.Context, known string, s Session) (string, error) {
			takes, fails := time.Duration(draw(25))*time.Second, draw(4) == 0
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(takes):
			}
			if fails {
				return "", errors.New("no model answers")
			}
			return join(ctx, known, s)
		}
		const users, rounds = 12, 40
		said := make([]string, users)
		for round := range rounds {
			stop := watch(t, open(t, s), learn)
			stopOther := watch(t, open(t, s), learn)
			for user := range users {
				if draw(8) == 0 {
					turn := fmt.Sprintf("%d.%d", user, round)
					say(t, a, fmt.Sprint(user), turn)
					said[user] = strings.TrimSpace(said[user] + " " + turn)
				}
			}
			time.Sleep(time.Duration(draw(15000)) * time.Millisecond)
			stop()
			if round%10 == 0 {
				s.Stop(t)
				time.Sleep(time.Duration(draw(60)) * time.Second)
				s.Start(t)
			}
			stopOther()
		}
		defer watch(t, a, join)()
		time.Sleep(time.Hour)
		for user := range users {
			wantKnown(t, a, fmt.Sprint(user), "", said[user])
		}
		if n, err := client.Count(t.Context(), a.failed); n != 0 || err != nil {
			t.Errorf("%d sessions are not handed over, %v", n, err)
		}
	})
}

// TestAgain: an event that comes again after the hand-over changes nothing, even if there
// is a new session.
func TestAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		a := open(t, s)
		for _, lives := range []time.Duration{idle - warn + time.Second, idle + time.Second} {
			_, from, err := a.client.LogBounds(t.Context())
			check(t, err)
			id := fmt.Sprint(lives)
			say(t, a, id, "a")
			time.Sleep(lives)
			var last *client.Event
			for e, err := range a.client.Changes(t.Context(), client.FromSeq(from+1), client.OfType(client.DocumentExpiring, client.DocumentExpired), client.UntilNow()) {
				check(t, err)
				last = e
			}
			for range 2 {
				check(t, a.handOver(t.Context(), last, join))
				wantKnown(t, a, id, "", "a")
			}
			say(t, a, id, "b")
			check(t, a.handOver(t.Context(), last, join))
			wantKnown(t, a, id, "b", "a")
		}
	})
}

// TestConcurrent: of turns that several processes add to one session none is lost.
func TestConcurrent(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		a := open(t, s)
		var all sync.WaitGroup
		for i := range 20 {
			own := open(t, s)
			all.Go(func() { say(t, own, "ann", fmt.Sprint(i)) })
		}
		all.Wait()
		session, _, err := a.Open(t.Context(), "ann")
		if n := len(session.Value.Turns); n != 20 || err != nil {
			t.Errorf("%d turns, %v", n, err)
		}
	})
}

// TestForeign: documents that are no sessions, or too large, and a model that never answers
// end no watcher. What cannot be handed over is put aside, and comes back when restored.
func TestForeign(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		a := open(t, s)
		for id, document := range map[string]any{
			live + "unfit": map[string]any{"turns": 5}, "other": map[string]int{"a": 1}, live: Session{}, live + "forgets": Session{[]string{"a"}},
			live + "large": Session{[]string{strings.Repeat("x", 1<<20), "more"}}, memory + "forgets": map[string]any{"text": 5, "ttl": -1},
		} {
			_, err := client.Upsert(t.Context(), a.coll, id, document)
			check(t, err)
		}
		var up atomic.Bool
		defer watch(t, a, func(ctx context.Context, known string, s Session) (string, error) {
			if !up.Load() && s.Turns[0] == "c" {
				return "", errors.New("no model answers")
			}
			text, err := join(ctx, known, s)
			return text + text, err
		})()
		say(t, a, "cy", "c")
		time.Sleep(2 * idle)
		say(t, a, "ann", "a")
		time.Sleep(2 * idle)
		wantKnown(t, a, "ann", "", "aa")
		var aside []string
		for item, err := range client.Query[struct{ Session string }](t.Context(), a.failed, client.OrderBy("/session", client.Asc)) {
			check(t, err)
			aside = append(aside, item.Value.Session)
		}
		if got := strings.Join(aside, " "); got != "live/cy live/forgets live/large live/unfit" {
			t.Errorf("put aside: %s", got)
		}
		up.Store(true)
		_, err := client.Restore[Session](t.Context(), a.coll, live+"cy", "")
		check(t, err)
		time.Sleep(2 * idle)
		wantKnown(t, a, "cy", "", "cc")
	})
}

// TestSettings: those of a later start apply to live sessions.
func TestSettings(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		a := open(t, s)
		say(t, a, "ann", "a")
		open(t, s, client.DefaultTTL(time.Minute), client.WarnBefore(10*time.Second))
		open(t, s)
		defer watch(t, a, join)()
		time.Sleep(49 * time.Second)
		wantKnown(t, a, "ann", "a", "")
		time.Sleep(2 * time.Second)
		wantKnown(t, a, "ann", "", "a")
		if _, err := OpenAgents(t.Context(), a.client, client.DefaultTTL(-idle)); !errors.Is(err, client.ErrBadTTL) {
			t.Errorf("a negative time: %v", err)
		}
	})
}

func TestMain(m *testing.M) { manual.Main(m, main) }

// TestPage: docs/agents.md, on lapse serve.
func TestPage(t *testing.T) {
	manual.Run(t, "agents.md", "NATS_URL="+server.Start(t))
}
