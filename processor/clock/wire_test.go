package clock_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// TestClockSet: while the clock is far off in either direction, nothing expires or
// disappears, writes are refused and mutations wait. All resumes when it is right again.
func TestClockSet(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*processortest.Wire, *processortest.Clock)
		n    int // mutations published meanwhile
	}{
		{"an hour ahead", func(_ *processortest.Wire, c *processortest.Clock) { c.Set(time.Hour) }, 600}, // more than the writer reads ahead
		{"an hour behind", func(_ *processortest.Wire, c *processortest.Clock) { c.Set(-time.Hour) }, 3},
		{"ten years ahead", func(_ *processortest.Wire, c *processortest.Clock) { c.Set(10 * processortest.Year) }, 3},
		{"ten years behind", func(_ *processortest.Wire, c *processortest.Clock) { c.Set(-10 * processortest.Year) }, 3},
		{"standing still", func(_ *processortest.Wire, c *processortest.Clock) { c.Freeze(); time.Sleep(70 * time.Second) }, 3},
		{"a day and back again and again", func(w *processortest.Wire, c *processortest.Clock) {
			k := w.Inside().Retention.Clock
			for range 1000 {
				c.Set(24 * time.Hour)
				k.Check()
				time.Sleep(50 * time.Millisecond)
				c.Set(0)
				k.Check()
				time.Sleep(50 * time.Millisecond)
			}
			c.Set(24 * time.Hour)
		}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c *processortest.Clock
			processortest.Bubble(t, func(w *processortest.Wire) {
				w.Want(201, "collection.create.c", `{"defaultTtl":1000}`)
				ts := w.TS(w.Want(201, "document.create.c.0", `{}`))
				for i := 1; i < 30; i++ {
					w.Want(201, fmt.Sprintf("document.create.c.%d", i), `{}`)
				}
				w.Want(201, "document.create.c.later", `{"ttl":5000}`)
				time.Sleep(10 * time.Second)
				test.set(w, c)
				time.Sleep(2 * time.Second)
				seq, readings := w.End(), c.Readings()

				w.WantReady("the clock is wrong", "the clock is not trusted: the clock says")
				s := w.Status()
				if !s.Clock.Suspect || s.Clock.Reason == "" || s.Documents != 31 {
					t.Fatalf("the status is %+v", s)
				}
				for range 10 {
					r := w.Refused(503, "unavailable", "document.upsert.c.new", `{}`)
					if !strings.Contains(r.Message, "the clock says") || !strings.Contains(r.Message, "--accept-clock") {
						t.Fatalf("the refusal does not say why: %s", r)
					}
				}
				w.Refused(503, "unavailable", "batch.c", `{"operations":[{"op":"upsert","id":"a","body":{}}]}`)
				last := uint64(0)
				for i := range test.n {
					last = w.Publish(fmt.Sprintf("document.upsert.c.m%d", i), `{"ttl":-1}`)
				}
				processortest.SleepUntil(ts+999, 0)
				w.Want(200, "document.get.c.29", "")
				time.Sleep(75 * time.Second) // longer, for the clock that stood still
				w.Want(404, "document.get.c.0", "")
				w.Want(404, "document.get.c.29", "")
				w.Want(200, "document.get.c.later", "")
				s = w.Status()
				if s.Documents != 1 || s.Overdue != 30 || s.Clock.Refused != 11 || s.MutationsBehind != uint64(test.n) ||
					s.Clock.ForMs < 900_000 || s.Clock.ForMs > 1_200_000 {
					t.Errorf("with 30 documents overdue the status is %+v", s)
				}
				if w.End() != seq {
					t.Errorf("the log went from %d to %d while the clock was wrong", seq, w.End())
				}
				if n := c.Readings() - readings; n > 3000 {
					t.Errorf("the clock was read %d times in 1100 seconds", n)
				}
				if lines := strings.Count(w.Logs.String(), "not trusted"); lines > 110 {
					t.Errorf("the log has %d lines about the clock", lines)
				}

				c.Set(0)
				time.Sleep(2 * time.Second)
				w.Judged(last)
				w.Want(201, "document.create.c.0", `{}`)
				if s = w.Status(); s.Clock.Suspect || s.Overdue != 0 || s.Documents != int64(test.n)+2 {
					t.Errorf("when the clock is right again the status is %+v", s)
				}
				w.WantReady("the clock is right again")
				if !strings.Contains(w.Logs.String(), "the clock is right again") {
					t.Errorf("the log does not say that the clock is right again:\n%s", w.Logs)
				}
				w.VerifyLog(0)
			}, processortest.WithClock(&c))
		})
	}
}

// TestClockNotUndone: a document that had expired before the clock was set back stays
// expired, even if the log lacks its expiry.
func TestClockNotUndone(t *testing.T) {
	var c *processortest.Clock
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":10}`)
		ts := w.TS(w.Want(201, "document.create.c.a", `{}`))
		release := w.HoldWriter()
		processortest.SleepUntil(ts+10, 0)
		w.Want(404, "document.get.c.a", "")
		c.Step(-30 * time.Second)
		w.Want(404, "document.get.c.a", "")
		release()
		w.Want(404, "document.get.c.a", "")
		time.Sleep(time.Millisecond)
		w.WantSummary(2, "DocumentCreated(a) DocumentExpired(a)")
	}, processortest.WithClock(&c))
}

// TestClockSetBackBeforeDeadline: no busy loop either if the clock is set back just before a
// deadline, so that time stands still there.
func TestClockSetBackBeforeDeadline(t *testing.T) {
	var c *processortest.Clock
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":10}`)
		ts := w.TS(w.Want(201, "document.create.c.a", `{}`))
		time.Sleep(time.Until(time.Unix(ts+10, 0)) - 100*time.Microsecond)
		c.Step(-30 * time.Second)
		w.Want(201, "document.upsert.c.b", `{"ttl":-1}`)
		readings := c.Readings()
		time.Sleep(30 * time.Second)
		if n := c.Readings() - readings; n > 100 {
			t.Errorf("the clock was read %d times in 30 seconds", n)
		}
		w.WantSummary(2, "DocumentCreated(a) DocumentCreated(b)")
		time.Sleep(time.Millisecond)
		w.WantSummary(2, "DocumentCreated(a) DocumentCreated(b) DocumentExpired(a)")
	}, processortest.WithClock(&c))
}

// TestClockAccepted: an operator can accept the clock.
func TestClockAccepted(t *testing.T) {
	var c *processortest.Clock
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":1000}`)
		w.Want(201, "document.create.c.a", `{}`)
		w.Processor.AcceptClock() // no effect
		c.Set(10 * processortest.Year)
		w.Refused(503, "unavailable", "document.upsert.c.b", `{}`)
		w.Want(200, "document.get.c.a", "")
		w.Processor.AcceptClock()
		time.Sleep(2 * time.Second)
		w.Want(404, "document.get.c.a", "")
		w.WantSummary(2, "DocumentCreated(a) DocumentExpired(a)")
		ts := w.TS(w.Want(201, "document.create.c.b", `{}`))
		if want := time.Now().Add(10 * processortest.Year).Unix(); ts != want {
			t.Errorf("_ts is %d by the clock that was accepted, want %d", ts, want)
		}

		// Back an hour: log time is paused until the clock catches up.
		c.Step(-time.Hour)
		w.Refused(503, "unavailable", "document.upsert.c.b", `{}`)
		time.Sleep(999 * time.Second)
		w.Processor.AcceptClock()
		time.Sleep(2 * time.Second)
		stood := w.TS(w.Want(200, "document.upsert.c.b", `{}`))
		time.Sleep(time.Hour - 1100*time.Second)
		if got := w.TS(w.Want(200, "document.upsert.c.b", `{}`)); got != stood {
			t.Errorf("_ts went from %d to %d while time stood still", stood, got)
		}
		if !strings.Contains(w.Logs.String(), "log time is paused") {
			t.Errorf("the log does not say that time stands still:\n%s", w.Logs)
		}
		time.Sleep(1000 * time.Second)
		w.Want(200, "document.get.c.b", "")
		time.Sleep(1200 * time.Second)
		w.Want(404, "document.get.c.b", "")
		w.WantSummary(5, "DocumentCreated(b) DocumentReplaced(b) DocumentReplaced(b) DocumentExpired(b)")
	}, processortest.WithClock(&c))
}

// TestClockAtStart: a start compares the clock with the log's end.
func TestClockAtStart(t *testing.T) {
	for _, test := range []struct {
		name string
		off  time.Duration // the clock's offset from the log's end at the start
		long time.Duration // time until writes are accepted; never if negative
	}{
		{"downtime", 719 * time.Hour, 0},
		{"more downtime", 721 * time.Hour, -1},
		{"ten years ahead", 10 * processortest.Year, -1},
		{"a minute behind", -time.Minute, 0},
		{"ten minutes behind", -10 * time.Minute, 9 * time.Minute},
		{"ten years behind", -10 * processortest.Year, -1},
		{"ten years behind, the projection lost", -10 * processortest.Year, -1},
	} {
		lost := strings.HasSuffix(test.name, "lost")
		t.Run(test.name, func(t *testing.T) {
			var c *processortest.Clock
			processortest.Bubble(t, func(w *processortest.Wire) {
				w.Want(201, "collection.create.c", `{"defaultTtl":1000}`)
				w.Want(201, "document.create.c.a", `{}`)
				last := w.Publish("document.upsert.c.m", `{}`)
				w.Judged(last)
				seq := w.End()
				w.Stop()
				if lost {
					w.RemoveProjection()
				}
				last = w.Publish("document.upsert.c.n", `{}`)
				c.Step(test.off)
				w.Start()
				if test.long == 0 {
					w.Want(map[bool]int{true: 201, false: 200}[test.off > 0], "document.upsert.c.a", `{}`)
					return
				}
				w.Want(200, "document.get.c.a", "") // by the time at the log's end
				w.Refused(503, "unavailable", "document.upsert.c.b", `{}`)
				w.Want(200, "document.get.c.m", "")
				w.Want(404, "document.get.c.n", "")
				s := w.Status()
				if !s.Clock.Suspect || time.Duration(s.Clock.OffByMs)*time.Millisecond-test.off > time.Second || !strings.HasPrefix(s.Clock.Reason, "the log ends at ") {
					t.Errorf("the status is %+v", s)
				}
				if test.long > 0 {
					time.Sleep(test.long - time.Second)
					w.Refused(503, "unavailable", "document.upsert.c.b", `{}`)
					time.Sleep(2 * time.Second)
					w.Want(201, "document.upsert.c.b", `{}`)
					w.Judged(last)
					return
				}
				time.Sleep(990 * time.Second)
				w.Want(200, "document.get.c.a", "")
				time.Sleep(20 * time.Second)
				gone := 200 // time stands still
				if test.off > 0 {
					gone = 404 // it has passed, whatever the clock says
				}
				w.Want(gone, "document.get.c.a", "")
				if s := w.Summary(seq); s != "" {
					t.Errorf("the clock is wrong and the log says %s", s)
				}

				// The clock is set back to what it was when the log ended.
				c.Set(0)
				time.Sleep(2 * time.Second)
				w.Want(201, "document.upsert.c.b", `{}`)
				w.Want(404, "document.get.c.a", "")
				w.Judged(last)
				w.VerifyLog(0)
			}, processortest.WithClock(&c))
		})
		if test.long >= 0 || lost {
			continue
		}
		t.Run(test.name+" and accepted", func(t *testing.T) {
			var c *processortest.Clock
			processortest.Bubble(t, func(w *processortest.Wire) {
				w.Want(201, "collection.create.c", `{"defaultTtl":1000}`)
				w.Want(201, "document.create.c.a", `{}`)
				end := w.Status().LogTime
				w.Stop()
				c.Step(test.off)
				w.Options.AcceptClock = true
				w.Start()
				if s := w.Status(); s.Clock.Suspect {
					t.Errorf("the clock was accepted and the status is %+v", s)
				}
				if test.off > 0 {
					w.Want(404, "document.get.c.a", "")
					w.Want(201, "document.upsert.c.a", `{}`)
					if s := w.Status(); s.LogTime != time.Now().Add(test.off).UnixMilli() {
						t.Errorf("log time is %d", s.LogTime)
					}
					return
				}
				time.Sleep(2000 * time.Second)
				w.Want(200, "document.upsert.c.a", `{}`)
				if s := w.Status(); s.LogTime != end || s.Clock.Suspect {
					t.Errorf("log time went from %d to %d", end, s.LogTime)
				}
			}, processortest.WithClock(&c))
		})
	}
}

// TestClockWithoutExpiry: without anything that can expire, a log of any age is accepted.
func TestClockWithoutExpiry(t *testing.T) {
	var c *processortest.Clock
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Stop()
		c.Step(10 * processortest.Year)
		w.Start()
		w.Want(201, "collection.create.c", `{}`)
	}, processortest.WithClock(&c))
}

// TestClockComparedWithServer: the clock is compared with that of a NATS server that has its own.
func TestClockComparedWithServer(t *testing.T) {
	var c *processortest.Clock
	other := func(o *processor.Options) { o.SameClock = false }

	// The machine slept without noticing. After its clock is set, an operator has to
	// accept it.
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":1000}`)
		w.Want(201, "document.create.c.a", `{}`)
		time.Sleep(time.Minute)
		w.Want(201, "document.create.c.b", `{}`)
		c.Pause(2 * time.Hour)
		time.Sleep(12 * time.Second)
		r := w.Refused(503, "unavailable", "document.upsert.c.b", `{}`)
		if !strings.Contains(r.Message, "behind the NATS server's") {
			t.Error(r)
		}
		w.Want(200, "document.get.c.a", "")
		c.Set(0)
		time.Sleep(12 * time.Second)
		w.Refused(503, "unavailable", "document.upsert.c.b", `{}`)
		w.Processor.AcceptClock()
		time.Sleep(2 * time.Second)
		w.Want(201, "document.upsert.c.b", `{}`)
		w.Want(404, "document.get.c.a", "")
		w.WantSummary(4, "DocumentExpired(a) DocumentExpired(b) DocumentCreated(b)")
	}, processortest.WithClock(&c), other)

	// A start compares, too.
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Refused(503, "unavailable", "collection.create.c", `{}`)
		c.Set(0)
		time.Sleep(2 * time.Second)
		ts := w.TS(w.Want(201, "collection.create.c", `{}`))
		if ts != time.Now().Unix() {
			t.Errorf("_ts is %d", ts)
		}
		w.Restart()
		w.Want(201, "document.create.c.a", `{}`)
	}, processortest.WithClock(&c), other, func(*processor.Options) { c.Set(10 * processortest.Year) })
}

// TestClockStepsWithServer: a step of the clock is not trusted even if the NATS server's clock,
// on the same machine, makes the same step, whether lapse runs, is restarted after it, or
// is down. To lapse, a machine whose clocks stood still and are then set looks like one
// whose clock is set ahead together with the server's.
func TestClockStepsWithServer(t *testing.T) {
	for _, ahead := range []time.Duration{2 * time.Minute, 20 * time.Minute} {
		for _, how := range []string{"while it runs", "before a restart", "while it is down", "while it starts the first time after a boot"} {
			t.Run(fmt.Sprint(ahead, " ", how), func(t *testing.T) {
				var c *processortest.Clock
				processortest.Bubble(t, func(w *processortest.Wire) {
					w.Want(201, "collection.create.c", `{"defaultTtl":100}`)
					for i := range 20 {
						w.Want(201, fmt.Sprintf("document.create.c.%d", i), `{}`)
					}
					time.Sleep(30 * time.Second) // for a comparison with the server's clock
					if how == "while it is down" {
						w.Stop()
					}
					c.Pause(ahead)
					c.Set(0)
					switch how {
					case "before a restart":
						time.Sleep(2 * time.Second)
						w.Restart()
					case "while it starts the first time after a boot":
						w.Stop()
						w.Options.Boot = "second"
						w.Start()
						if s := w.Status(); s.Clock.Suspect { // a new boot leaves nothing to compare with
							t.Errorf("the status is %+v", s)
						}
						return
					case "while it is down":
						w.Start()
					}
					seq := w.End()
					time.Sleep(50 * time.Second) // all comparisons with the server agree
					w.Refused(503, "unavailable", "document.upsert.c.0", `{}`)
					s := w.Status()
					if off := time.Duration(s.Clock.OffByMs) * time.Millisecond; !s.Clock.Suspect || s.Documents != 20 || (off-ahead).Abs() > 2*time.Second {
						t.Fatalf("the status is %+v", s)
					}
					if w.End() != seq {
						t.Errorf("the log went from %d to %d", seq, w.End())
					}
					w.Processor.AcceptClock()
					w.Eventually("all have expired", func() bool { return w.Status().Documents == 0 && w.Status().Overdue == 0 })
					w.Restart() // keeps the acceptance
					w.Want(201, "document.create.c.0", `{}`)
				}, processortest.WithClock(&c), func(o *processor.Options) { o.SameClock, o.Boot, o.ClockFile = false, "first", "clock" })
			})
		}
	}
}

// TestClockTakeOver: a standby whose clock was set ahead stays in doubt as the writer,
// whether or not its clock was checked before the step.
func TestClockTakeOver(t *testing.T) {
	for _, looked := range []bool{true, false} {
		processortest.InCrew(t, 2, func(c *processortest.Crew) {
			clock := processortest.NewClock()
			a, b := c.Members[0], c.Members[1]
			b.Options.Clock = clock.Read
			c.Start()
			a.Want(201, "collection.create.c", `{"defaultTtl":1000}`)
			a.Want(201, "document.create.c.a", `{}`)
			b.Has(a)
			clock.Pause(2 * time.Minute)
			a.Want(201, "document.create.c.b", `{}`)
			b.Has(a)
			if looked {
				time.Sleep(15 * time.Second)
			}
			clock.Set(0)
			a.Stop()
			b.Becomes(observe.Writer)
			time.Sleep(30 * time.Second)
			b.Refused(503, "unavailable", "document.upsert.c.x", `{}`)
			if s := b.Status(); !s.Clock.Suspect || s.Documents != 2 {
				t.Errorf("the status is %+v", s)
			}
			b.Processor.AcceptClock()
			time.Sleep(2 * time.Second)
			b.Want(201, "document.upsert.c.x", `{}`)
		})
	}
}

// TestClockWrongWhileLogUnreachable: if the clock goes wrong while the log is unreachable, pending
// mutations are still judged once it is right again.
func TestClockWrongWhileLogUnreachable(t *testing.T) {
	var c *processortest.Clock
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":100}`)
		w.Want(201, "document.create.c.a", `{}`)
		unfill := w.FillLog()
		last := w.Publish("document.upsert.c.b", `{}`)
		time.Sleep(5 * time.Second)
		c.Set(10 * processortest.Year)
		time.Sleep(5 * time.Second)
		unfill()
		time.Sleep(time.Minute)
		w.Refused(503, "unavailable", "document.upsert.c.d", `{}`)
		w.Want(200, "document.get.c.a", "")
		c.Set(0)
		time.Sleep(2 * time.Second)
		w.Judged(last)
		w.Want(200, "document.get.c.b", "")
		time.Sleep(2 * time.Minute)
		w.WantSummary(2, "DocumentCreated(a) DocumentCreated(b) DocumentExpired(a) DocumentExpired(b)")
		w.VerifyLog(0)
	}, processortest.WithClock(&c))
}

// TestClockTrimsNothing: retention trims nothing while the clock is ahead, and makes no
// snapshot.
func TestClockTrimsNothing(t *testing.T) {
	var c *processortest.Clock
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		for i := range 5 {
			w.Want(201, fmt.Sprintf("document.create.c.%d", i), `{}`)
			w.Want(204, fmt.Sprintf("document.delete.c.%d", i), "")
		}
		time.Sleep(10 * time.Minute) // for snapshots
		first := w.Stream("LAPSE_main").CachedInfo().State.FirstSeq
		w.Want(201, "document.create.c.last", `{}`)
		c.Set(10 * processortest.Year)
		time.Sleep(2 * clock.Recheck)
		made := w.Inside().Retention.Made.Load()
		time.Sleep(10 * time.Minute)
		if n := w.Inside().Retention.Made.Load(); n != made {
			t.Errorf("%d snapshots were made", n-made)
		}
		if got := w.Stream("LAPSE_main").CachedInfo().State.FirstSeq; got != first || first != 1 {
			t.Errorf("the log began at %d and begins at %d", first, got)
		}
		w.Want(200, "history.c.0", "")
		c.Set(0)
		time.Sleep(40 * time.Minute)
		if got := w.Stream("LAPSE_main").CachedInfo().State.FirstSeq; got == 1 {
			t.Error("the clock is right again and nothing was trimmed")
		}
		if strings.Contains(w.Logs.String(), "retention failed") {
			t.Errorf("what was not tried failed:\n%s", w.Logs)
		}
	}, processortest.WithClock(&c), processortest.Retaining(30*time.Minute, time.Minute))
}

// TestClockMetrics: metrics report doubt, offset and refusals.
func TestClockMetrics(t *testing.T) {
	var c *processortest.Clock
	processortest.Bubble(t, func(w *processortest.Wire) {
		want := func(suspect, offset, refused float64) {
			t.Helper()
			got := processortest.Gather(t, w.Monitor)
			got["lapse_clock_offset_seconds"] = math.Trunc(got["lapse_clock_offset_seconds"])
			got.Want(t, processortest.Metrics{"lapse_clock_suspect": suspect, "lapse_clock_offset_seconds": offset, "lapse_clock_refused_total": refused})
		}
		want(0, 0, 0)
		c.Set(-3600 * time.Second)
		w.Refused(503, "unavailable", "collection.create.c", `{}`)
		want(1, -3600, 1)
		c.Set(30 * time.Second)
		time.Sleep(2 * time.Second)
		want(0, 29, 1) // in two seconds, a 60th of them is followed
	}, processortest.WithClock(&c))
}

// TestClockAtRandom writes while the clock steps, freezes and drifts, and then checks
// every event against the right clock.
func TestClockAtRandom(t *testing.T) {
	random := stress.Rand(t)
	for _, kind := range []string{"set far", "set near", "anything"} {
		t.Run(kind, func(t *testing.T) {
			for range stress.Pick(1, 100) {
				var c *processortest.Clock
				processortest.Bubble(t, func(w *processortest.Wire) {
					r := &clockRun{Wire: w, clock: c, random: random, kind: kind, told: make(map[string]bool)}
					r.run(stress.Pick(200, 1500))
				}, processortest.WithClock(&c), func(o *processor.Options) { o.SameClock = random.IntN(2) == 0 })
			}
		})
	}
}

type clockRun struct {
	*processortest.Wire
	clock  *processortest.Clock
	random *rand.Rand
	kind   string
	told   map[string]bool // by n in the document: whether the write was acknowledged
	last   uint64          // sequence of the last mutation published

	// least and most are the extreme offsets while the clock could be followed.
	least, most time.Duration
}

func (r *clockRun) run(steps int) {
	began := time.Now()
	r.Want(201, "collection.create.c", `{"defaultTtl":60}`)
	for i := range steps {
		r.observe(began)
		r.move()
		r.observe(began)
		r.write(i)
		time.Sleep(time.Duration(r.random.Int64N(int64(5 * time.Second))))
	}
	// The clock is right again; due documents expire.
	r.observe(began)
	r.clock.Set(0)
	time.Sleep(2 * time.Second)
	r.Judged(r.last)
	r.Want(201, "document.upsert.c.last", `{"ttl":100}`)
	time.Sleep(5 * time.Minute)
	if s := r.Status(); s.Clock.Suspect || s.Documents != 0 || s.Overdue != 0 || s.MutationsBehind != 0 {
		r.T.Errorf("at the end the status is %+v", s)
	}
	found := make(map[string]int)
	limit := time.Minute + time.Since(began)/clock.FollowRate
	early := r.most - r.least
	if early > 0 {
		early += time.Second // deadlines are whole seconds of either clock
	}
	for _, e := range r.VerifyLog(early) {
		if off := time.UnixMilli(e.Time).Sub(e.At); off > r.most || off < r.least-time.Second || off > limit {
			r.T.Errorf("event %d is stamped %s ahead of the right time, the clock was between %s and %s", e.Seq, off, r.least, r.most)
		}
		if e.Type == schema.DocumentCreated || e.Type == schema.DocumentReplaced {
			var document struct{ N string }
			r.Check(json.Unmarshal(e.Body, &document))
			found[document.N]++
		}
	}
	for n, acknowledged := range r.told {
		if acknowledged && found[n] != 1 || !acknowledged && found[n] != 0 {
			r.T.Errorf("write %s: acknowledged %v, %d times in the log", n, acknowledged, found[n])
		}
	}
	if max := int(time.Since(began)/time.Second)*4 + steps*20; r.clock.Readings() > max {
		r.T.Errorf("the clock was read %d times in %s", r.clock.Readings(), time.Since(began))
	}
}

// observe records the clock's offset if it can be followed.
func (r *clockRun) observe(began time.Time) {
	limit := time.Minute + time.Since(began)/clock.FollowRate
	ahead := r.clock.Ahead()
	if standing := !r.clock.Stands.IsZero(); ahead.Abs() > limit && !standing {
		return
	}
	ahead = max(-limit, min(ahead, limit))
	r.least, r.most = min(r.least, ahead), max(r.most, ahead)
}

// move sometimes sets, freezes or drifts the clock.
func (r *clockRun) move() {
	kind := r.kind
	if kind == "anything" {
		kind = []string{"set far", "set near", "freeze", "drift"}[r.random.IntN(4)]
	}
	c := r.clock
	switch pick := r.random.IntN(60); {
	case pick < 6:
		c.Set(0)
	case pick > 8:
	case kind == "set far":
		c.Set([]time.Duration{time.Hour, -time.Hour, 10 * processortest.Year, -10 * processortest.Year, 62 * time.Second, -62 * time.Second}[r.random.IntN(6)])
	case kind == "set near":
		c.Step([]time.Duration{time.Second, -time.Second, 29 * time.Second, -29 * time.Second, time.Millisecond}[r.random.IntN(5)])
	case kind == "freeze":
		c.Freeze()
	case kind == "drift":
		c.Drift((r.random.Float64() - 0.5) / 100)
	}
}

// write writes a document and reads it back, or publishes it as a mutation.
func (r *clockRun) write(i int) {
	n := fmt.Sprint(i)
	body := fmt.Sprintf(`{"n":%q,"ttl":%d}`, n, 1+r.random.IntN(100))
	tail := fmt.Sprintf("document.upsert.c.%d", r.random.IntN(20))
	if r.random.IntN(3) == 0 {
		r.told[n] = true
		r.last = r.Publish(tail, body)
		return
	}
	before := r.End()
	switch reply := r.Ask(tail, body); {
	case reply.Code < 300:
		r.told[n] = true
		if got := r.Ask(strings.Replace(tail, "upsert", "get", 1), ""); got.Code != 200 && !strings.Contains(body, `"ttl":1}`) {
			r.T.Errorf("write %s is gone at once: %s", n, got)
		}
	case reply.Code == 503 && strings.Contains(reply.Message, "the clock says"):
		r.told[n] = false
		if after := r.End(); after != before {
			r.T.Errorf("write %s was refused and the log went from %d to %d", n, before, after)
		}
	default:
		r.T.Errorf("write %s: %s", n, reply)
	}
}
