package bubble_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/lapsetest/bubble"
	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/stress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// session is a document.
type session struct {
	Requests int `json:"requests"`
	TTL      int `json:"ttl,omitempty"`
}

// TestDeadline: documents expire exactly half an hour after their last write.
func TestDeadline(t *testing.T) {
	bubble.Test(t, func(t *testing.T, s *bubble.Server) {
		c, ctx := s.Client(t), t.Context()
		sessions, err := c.CreateCollection(ctx, "sessions", client.DefaultTTL(30*time.Minute))
		check(t, err)
		for _, id := range []string{"a", "b"} {
			_, err := client.Create(ctx, sessions, id, session{})
			check(t, err)
		}
		time.Sleep(20 * time.Minute)
		_, err = client.Patch[session](ctx, sessions, "b", map[string]int{"requests": 8})
		check(t, err)
		ends := func(id string, after time.Duration) {
			t.Helper()
			time.Sleep(after - time.Millisecond)
			_, err = client.Get[session](ctx, sessions, id)
			check(t, err)
			time.Sleep(time.Millisecond)
			if _, err = client.Get[session](ctx, sessions, id); !errors.Is(err, client.ErrDocumentNotFound) {
				t.Errorf("%s after half an hour: %v", id, err)
			}
		}
		ends("a", 10*time.Minute)
		ends("b", 20*time.Minute)
		synctest.Wait()
		for x, err := range client.Expirations[session](ctx, c, client.FromStart(), client.UntilNow()) {
			if check(t, err); !x.Time.Equal(x.Deadline) {
				t.Errorf("%s expired at %s, want %s", x.ID, x.Time, x.Deadline)
			}
		}
	})
}

// TestProgram runs a typical user program with all features of the client: a consumer
// follows the expiries while a writer continues.
func TestProgram(t *testing.T) {
	for i := range stress.Pick(2, 200) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T, s *bubble.Server) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := s.Client(t, client.WithReadYourWrites())
				orders, err := c.CreateCollection(ctx, "orders", client.TTLPerDocument(), client.IncludePaths("/requests"))
				check(t, err)
				var seen []string
				done := make(chan struct{})
				watcher := s.Client(t)
				go func() {
					defer close(done)
					for x, err := range client.Expirations[session](ctx, watcher, client.FromStart(), client.Durable("mailer")) {
						if err != nil {
							return
						}
						seen = append(seen, x.ID)
					}
				}()
				for round := range 5 {
					batch := orders.Batch()
					for i := range 10 {
						batch.Upsert(fmt.Sprintf("%d-%d", round, i), session{Requests: i, TTL: 60 + i})
					}
					results, err := batch.Run(ctx)
					check(t, err)
					check(t, results.Err())
					_, err = c.Submit(ctx, "document.upsert", "orders", fmt.Sprintf("%d-late", round), session{TTL: 90})
					check(t, err)
					time.Sleep(time.Second)
					n, err := client.Count(ctx, orders, client.Where("doc.requests >= 5", nil))
					check(t, err)
					if want := int64(5 * (round + 1)); n != want {
						t.Errorf("round %d: %d found, want %d", round, n, want)
					}
					if round == 2 {
						s.Stop(t)
						time.Sleep(time.Second)
						s.Start(t)
					}
				}
				// Calls of nats.go that keep timers.
				raw := s.Connect(t)
				_, err = raw.Request("lapse.main.api.status", nil, 5*time.Second)
				check(t, err)
				sub, err := raw.SubscribeSync("nothing")
				check(t, err)
				if _, err := sub.NextMsg(3 * time.Second); !errors.Is(err, nats.ErrTimeout) {
					t.Errorf("a message that nobody sent: %v", err)
				}
				check(t, raw.FlushTimeout(time.Second))
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				cancel()
				<-done
				if len(seen) != 55 {
					t.Errorf("%d expired, want 55: %s", len(seen), strings.Join(seen, " "))
				}
			})
		})
	}
}

// TestParallelTestRefused: Test panics in a parallel test, with a message that names t.Parallel.
func TestParallelTestRefused(t *testing.T) {
	t.Run("parallel", func(t *testing.T) {
		t.Parallel()
		defer func() {
			if p := fmt.Sprint(recover()); !strings.Contains(p, "can not use t.Parallel") {
				t.Errorf("it says %q", p)
			}
		}()
		bubble.Test(t, func(*testing.T, *bubble.Server) { t.Error("it ran") })
	})
}

// TestNATSOutsideBubble: NATS connections outside a bubble, used before and after it, and the
// bubble do not disturb each other.
func TestNATSOutsideBubble(t *testing.T) {
	ns, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	check(t, err)
	ns.Start()
	defer func() { ns.Shutdown(); ns.WaitForShutdown() }()
	nc, err := nats.Connect("", nats.InProcessServer(ns))
	check(t, err)
	defer nc.Close()
	keepTimers := func(nc *nats.Conn) {
		for range 10 {
			check(t, nc.FlushTimeout(time.Minute))
		}
	}
	for range stress.Pick(3, 300) {
		keepTimers(nc)
		bubble.Test(t, func(t *testing.T, s *bubble.Server) { keepTimers(s.Connect(t)) })
	}
	keepTimers(nc)
}

// TestFailingTestEnds: a test that fails while calls are in flight ends like any failing test,
// without a panic or leak.
func TestFailingTestEnds(t *testing.T) {
	if os.Getenv("LAPSE_BUBBLE_FAILS") != "" {
		bubble.Test(t, func(t *testing.T, s *bubble.Server) {
			c := s.Client(t)
			go func() {
				for range c.Changes(t.Context(), client.FromStart()) {
				}
			}()
			sessions, err := c.CreateCollection(t.Context(), "sessions", client.DefaultTTL(time.Minute))
			check(t, err)
			_, err = client.Create(t.Context(), sessions, "a", session{})
			check(t, err)
			t.Fatal("on purpose")
		})
		return
	}
	cmd := child.Command(t, os.Args[0], "-test.run=^TestFailingTestEnds$", "-test.timeout=1m")
	cmd.Env = append(cmd.Env, "LAPSE_BUBBLE_FAILS=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "on purpose") || strings.Contains(string(out), "panic") || strings.Contains(string(out), "leaked") {
		t.Errorf("it ended with %v and printed\n%s", err, out)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
