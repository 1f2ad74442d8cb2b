package clock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/processortest"
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
				metrics := processortest.Gather(t, w.Monitor)
				metrics.Want(t, processortest.Metrics{"lapse_clock_suspect": 1, "lapse_clock_refused_total": 11})
				if off := metrics["lapse_clock_offset_seconds"]; (off > 0) != (c.Ahead() > 0) {
					t.Errorf("the clock is %s ahead, and the metric %g s", c.Ahead(), off)
				}
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
				processortest.Gather(t, w.Monitor).Want(t, processortest.Metrics{"lapse_clock_suspect": 0, "lapse_clock_refused_total": 11})
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

// TestClockAtStart: a start compares the clock with the log's end, whatever is left of the
// projection; testdata/guard/start.txt has what it decides.
func TestClockAtStart(t *testing.T) {
	for _, test := range []struct {
		name string
		off  time.Duration // the clock's offset from the log's end at the start
		lost bool          // the projection
		gone int           // code for a document whose deadline has passed, if the clock cannot be believed
	}{
		{"ten years ahead", 10 * processortest.Year, false, 404},   // it has passed, whatever the clock says
		{"ten years behind", -10 * processortest.Year, false, 200}, // time stands still
		{"ten years behind, the projection lost", -10 * processortest.Year, true, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c *processortest.Clock
			processortest.Bubble(t, func(w *processortest.Wire) {
				w.Want(201, "collection.create.c", `{"defaultTtl":1000}`)
				w.Want(201, "document.create.c.a", `{}`)
				last := w.Publish("document.upsert.c.m", `{}`)
				w.Judged(last)
				seq := w.End()
				w.Stop()
				if test.lost {
					w.RemoveProjection()
				}
				last = w.Publish("document.upsert.c.n", `{}`)
				c.Step(test.off)
				w.Start()
				w.Want(200, "document.get.c.a", "") // by the time at the log's end
				w.Refused(503, "unavailable", "document.upsert.c.b", `{}`)
				w.Want(404, "document.get.c.n", "")
				s := w.Status()
				if !s.Clock.Suspect || time.Duration(s.Clock.OffByMs)*time.Millisecond-test.off > time.Second || !strings.HasPrefix(s.Clock.Reason, "the log ends at ") {
					t.Errorf("the status is %+v", s)
				}
				time.Sleep(990 * time.Second)
				w.Want(200, "document.get.c.a", "")
				time.Sleep(20 * time.Second)
				w.Want(test.gone, "document.get.c.a", "")
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
	}
}

// TestClockAcceptedAtStart: a start with AcceptClock goes on at the later of the clock and the
// log's end.
func TestClockAcceptedAtStart(t *testing.T) {
	for _, off := range []time.Duration{10 * processortest.Year, -10 * processortest.Year} {
		var c *processortest.Clock
		processortest.Bubble(t, func(w *processortest.Wire) {
			w.Want(201, "collection.create.c", `{"defaultTtl":1000}`)
			w.Want(201, "document.create.c.a", `{}`)
			end, code := w.Status().LogTime, 200
			w.Stop()
			c.Step(off)
			w.Options.AcceptClock = true
			w.Start()
			if off > 0 {
				end, code = time.Now().Add(off).UnixMilli(), 201
			}
			w.Want(code, "document.upsert.c.a", `{}`)
			if s := w.Status(); s.LogTime != end || s.Clock.Suspect {
				t.Errorf("%s ahead, the status is %+v", off, s)
			}
		}, processortest.WithClock(&c))
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
	for how, ahead := range map[string]time.Duration{"while it runs": 20 * time.Minute, "before a restart": 2 * time.Minute,
		"while it is down": 20 * time.Minute, "while it starts the first time after a boot": 2 * time.Minute} {
		t.Run(how, func(t *testing.T) {
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
