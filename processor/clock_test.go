package processor

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// TestClockSet: while the clock is far off in either direction, nothing expires or
// disappears, writes are refused and mutations wait. All resumes when it is right again.
func TestClockSet(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(*wire, *wrongClock)
	}{
		{"an hour ahead", func(_ *wire, c *wrongClock) { c.set(time.Hour) }},
		{"an hour behind", func(_ *wire, c *wrongClock) { c.set(-time.Hour) }},
		{"ten years ahead", func(_ *wire, c *wrongClock) { c.set(10 * Year) }},
		{"ten years behind", func(_ *wire, c *wrongClock) { c.set(-10 * Year) }},
		{"standing still", func(_ *wire, c *wrongClock) { c.freeze(); time.Sleep(70 * time.Second) }},
		{"a day and back again and again", func(w *wire, c *wrongClock) {
			for range 1000 {
				c.set(24 * time.Hour)
				w.status() // checks the clock
				time.Sleep(50 * time.Millisecond)
				c.set(0)
				w.status()
				time.Sleep(50 * time.Millisecond)
			}
			c.set(24 * time.Hour)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c *wrongClock
			inBubble(t, func(w *wire) {
				w.want(201, "collection.create.c", `{"defaultTtl":1000}`)
				ts := w.tsOf(w.want(201, "document.create.c.0", `{}`))
				for i := 1; i < 300; i++ {
					w.want(201, fmt.Sprintf("document.create.c.%d", i), `{}`)
				}
				w.want(201, "document.create.c.later", `{"ttl":5000}`)
				time.Sleep(10 * time.Second)
				test.set(w, c)
				time.Sleep(2 * time.Second)
				seq, readings := w.end(), c.readings()

				wantReady(w, "the clock is wrong", "the clock is not trusted: the clock says")
				s := w.status()
				if !s.Clock.Suspect || s.Clock.Reason == "" || s.Documents != 301 {
					t.Fatalf("the status is %+v", s)
				}
				for range 100 {
					r := w.refused(503, "unavailable", "document.upsert.c.new", `{}`)
					if !strings.Contains(r.message, "the clock says") || !strings.Contains(r.message, "--accept-clock") {
						t.Fatalf("the refusal does not say why: %s", r)
					}
				}
				w.refused(503, "unavailable", "batch.c", `{"operations":[{"op":"upsert","id":"a","body":{}}]}`)
				last := uint64(0)
				for i := range 600 { // more than the writer reads ahead
					last = w.publish(fmt.Sprintf("document.upsert.c.m%d", i), `{"ttl":-1}`)
				}
				sleepUntil(ts+999, 0)
				w.want(200, "document.get.c.299", "")
				time.Sleep(75 * time.Second) // longer, for the clock that stood still
				w.want(404, "document.get.c.0", "")
				w.want(404, "document.get.c.299", "")
				w.want(200, "document.get.c.later", "")
				s = w.status()
				if s.Documents != 1 || s.Overdue != 300 || s.Clock.Refused != 101 || s.MutationsBehind != 600 ||
					s.Clock.ForMs < 900_000 || s.Clock.ForMs > 1_200_000 {
					t.Errorf("with 300 documents overdue the status is %+v", s)
				}
				if w.end() != seq {
					t.Errorf("the log went from %d to %d while the clock was wrong", seq, w.end())
				}
				if n := c.readings() - readings; n > 3000 {
					t.Errorf("the clock was read %d times in 1100 seconds", n)
				}
				if lines := strings.Count(w.logs.String(), "not trusted"); lines > 110 {
					t.Errorf("the log has %d lines about the clock", lines)
				}

				c.set(0)
				time.Sleep(2 * time.Second)
				w.judged(last)
				w.want(201, "document.create.c.0", `{}`)
				if s = w.status(); s.Clock.Suspect || s.Overdue != 0 || s.Documents != 602 {
					t.Errorf("when the clock is right again the status is %+v", s)
				}
				wantReady(w, "the clock is right again")
				if !strings.Contains(w.logs.String(), "the clock is right again") {
					t.Errorf("the log does not say that the clock is right again:\n%s", w.logs)
				}
				w.wantTimeline(0)
			}, withClock(&c))
		})
	}
}

// wantTimeline checks the log: no document version ends twice, none expires earlier than
// its ttl by the right clock minus early, and mutations are judged once, in order.
func (w *wire) wantTimeline(early time.Duration) (events []stored) {
	w.t.Helper()
	events = w.timeline()
	versions := make(map[schema.Version]stored)
	ended := make(map[schema.Version]uint64)
	ttl := make(map[schema.CollectionName]int64)
	cause, at := uint64(0), int64(0)
	for _, e := range events {
		if e.Time < at {
			w.t.Errorf("event %d: log time goes back", e.Seq)
		}
		at = e.Time
		if e.Cause != 0 {
			if e.Cause != cause+1 {
				w.t.Errorf("event %d has the cause %d after %d", e.Seq, e.Cause, cause)
			}
			cause = e.Cause
		}
		switch {
		case e.Type == schema.CollectionCreated:
			var p struct{ DefaultTTL int64 }
			w.check(json.Unmarshal(e.Body, &p))
			ttl[e.Collection] = p.DefaultTTL
		case !e.Type.OnDocument():
			continue
		}
		if before, ok := ended[e.Previous]; ok && e.Previous != 0 {
			w.t.Errorf("event %d ends version %d, as event %d did", e.Seq, e.Previous, before)
		}
		ended[e.Previous] = e.Seq
		if e.Type != schema.DocumentExpired {
			versions[schema.Version(e.Seq)] = e
			continue
		}
		prior := versions[e.Previous]
		document := struct{ TTL int64 }{ttl[e.Collection]}
		w.check(json.Unmarshal(prior.Body, &document))
		if due := time.Unix(prior.at.Unix()+document.TTL, 0); e.at.Before(due.Add(-early)) {
			w.t.Errorf("event %d expires version %d, of %s, at %s, %s early; %s is explained", e.Seq, e.Previous, prior.at, e.at, due.Sub(e.at), early)
		}
	}
	return events
}

// TestClockNotUndone: a document that had expired before the clock was set back stays
// expired, even if the log lacks its expiry.
func TestClockNotUndone(t *testing.T) {
	var c *wrongClock
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{"defaultTtl":10}`)
		ts := w.tsOf(w.want(201, "document.create.c.a", `{}`))
		release := w.holdWriter()
		sleepUntil(ts+10, 0)
		w.want(404, "document.get.c.a", "")
		c.step(-30 * time.Second)
		w.want(404, "document.get.c.a", "")
		release()
		w.want(404, "document.get.c.a", "")
		time.Sleep(time.Millisecond)
		w.wantSummary(2, "DocumentCreated(a) DocumentExpired(a)")
	}, withClock(&c))
}

// TestClockSetBackBeforeDeadline: no busy loop either if the clock is set back just before a
// deadline, so that time stands still there.
func TestClockSetBackBeforeDeadline(t *testing.T) {
	var c *wrongClock
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{"defaultTtl":10}`)
		ts := w.tsOf(w.want(201, "document.create.c.a", `{}`))
		time.Sleep(time.Until(time.Unix(ts+10, 0)) - 100*time.Microsecond)
		c.step(-30 * time.Second)
		w.want(201, "document.upsert.c.b", `{"ttl":-1}`)
		readings := c.readings()
		time.Sleep(30 * time.Second)
		if n := c.readings() - readings; n > 100 {
			t.Errorf("the clock was read %d times in 30 seconds", n)
		}
		w.wantSummary(2, "DocumentCreated(a) DocumentCreated(b)")
		time.Sleep(time.Millisecond)
		w.wantSummary(2, "DocumentCreated(a) DocumentCreated(b) DocumentExpired(a)")
	}, withClock(&c))
}

// TestClockAccepted: an operator can accept the clock.
func TestClockAccepted(t *testing.T) {
	var c *wrongClock
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{"defaultTtl":1000}`)
		w.want(201, "document.create.c.a", `{}`)
		w.processor.AcceptClock() // no effect
		c.set(10 * Year)
		w.refused(503, "unavailable", "document.upsert.c.b", `{}`)
		w.want(200, "document.get.c.a", "")
		w.processor.AcceptClock()
		time.Sleep(2 * time.Second)
		w.want(404, "document.get.c.a", "")
		w.wantSummary(2, "DocumentCreated(a) DocumentExpired(a)")
		ts := w.tsOf(w.want(201, "document.create.c.b", `{}`))
		if want := time.Now().Add(10 * Year).Unix(); ts != want {
			t.Errorf("_ts is %d by the clock that was accepted, want %d", ts, want)
		}

		// Back an hour: log time is paused until the clock catches up.
		c.step(-time.Hour)
		w.refused(503, "unavailable", "document.upsert.c.b", `{}`)
		time.Sleep(999 * time.Second)
		w.processor.AcceptClock()
		time.Sleep(2 * time.Second)
		stood := w.tsOf(w.want(200, "document.upsert.c.b", `{}`))
		time.Sleep(time.Hour - 1100*time.Second)
		if got := w.tsOf(w.want(200, "document.upsert.c.b", `{}`)); got != stood {
			t.Errorf("_ts went from %d to %d while time stood still", stood, got)
		}
		if !strings.Contains(w.logs.String(), "log time is paused") {
			t.Errorf("the log does not say that time stands still:\n%s", w.logs)
		}
		time.Sleep(1000 * time.Second)
		w.want(200, "document.get.c.b", "")
		time.Sleep(1200 * time.Second)
		w.want(404, "document.get.c.b", "")
		w.wantSummary(5, "DocumentCreated(b) DocumentReplaced(b) DocumentReplaced(b) DocumentExpired(b)")
	}, withClock(&c))
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
		{"ten years ahead", 10 * Year, -1},
		{"a minute behind", -time.Minute, 0},
		{"ten minutes behind", -10 * time.Minute, 9 * time.Minute},
		{"ten years behind", -10 * Year, -1},
		{"ten years behind, the projection lost", -10 * Year, -1},
	} {
		lost := strings.HasSuffix(test.name, "lost")
		t.Run(test.name, func(t *testing.T) {
			var c *wrongClock
			inBubble(t, func(w *wire) {
				w.want(201, "collection.create.c", `{"defaultTtl":1000}`)
				w.want(201, "document.create.c.a", `{}`)
				last := w.publish("document.upsert.c.m", `{}`)
				w.judged(last)
				seq := w.end()
				w.stop()
				if lost {
					w.check(w.options.Projection.FS.RemoveAll(w.options.Dir))
				}
				last = w.publish("document.upsert.c.n", `{}`)
				c.step(test.off)
				w.start()
				if test.long == 0 {
					w.want(map[bool]int{true: 201, false: 200}[test.off > 0], "document.upsert.c.a", `{}`)
					return
				}
				w.want(200, "document.get.c.a", "") // by the time at the log's end
				w.refused(503, "unavailable", "document.upsert.c.b", `{}`)
				w.want(200, "document.get.c.m", "")
				w.want(404, "document.get.c.n", "")
				s := w.status()
				if !s.Clock.Suspect || time.Duration(s.Clock.OffByMs)*time.Millisecond-test.off > time.Second || !strings.HasPrefix(s.Clock.Reason, "the log ends at ") {
					t.Errorf("the status is %+v", s)
				}
				if test.long > 0 {
					time.Sleep(test.long - time.Second)
					w.refused(503, "unavailable", "document.upsert.c.b", `{}`)
					time.Sleep(2 * time.Second)
					w.want(201, "document.upsert.c.b", `{}`)
					w.judged(last)
					return
				}
				time.Sleep(990 * time.Second)
				w.want(200, "document.get.c.a", "")
				time.Sleep(20 * time.Second)
				gone := 200 // time stands still
				if test.off > 0 {
					gone = 404 // it has passed, whatever the clock says
				}
				w.want(gone, "document.get.c.a", "")
				if s := w.summary(seq); s != "" {
					t.Errorf("the clock is wrong and the log says %s", s)
				}

				// The clock is set back to what it was when the log ended.
				c.set(0)
				time.Sleep(2 * time.Second)
				w.want(201, "document.upsert.c.b", `{}`)
				w.want(404, "document.get.c.a", "")
				w.judged(last)
				w.wantTimeline(0)
			}, withClock(&c))
		})
		if test.long >= 0 || lost {
			continue
		}
		t.Run(test.name+" and accepted", func(t *testing.T) {
			var c *wrongClock
			inBubble(t, func(w *wire) {
				w.want(201, "collection.create.c", `{"defaultTtl":1000}`)
				w.want(201, "document.create.c.a", `{}`)
				end := w.status().LogTime
				w.stop()
				c.step(test.off)
				w.options.AcceptClock = true
				w.start()
				if s := w.status(); s.Clock.Suspect {
					t.Errorf("the clock was accepted and the status is %+v", s)
				}
				if test.off > 0 {
					w.want(404, "document.get.c.a", "")
					w.want(201, "document.upsert.c.a", `{}`)
					if s := w.status(); s.LogTime != time.Now().Add(test.off).UnixMilli() {
						t.Errorf("log time is %d", s.LogTime)
					}
					return
				}
				time.Sleep(2000 * time.Second)
				w.want(200, "document.upsert.c.a", `{}`)
				if s := w.status(); s.LogTime != end || s.Clock.Suspect {
					t.Errorf("log time went from %d to %d", end, s.LogTime)
				}
			}, withClock(&c))
		})
	}
}

// TestClockWithoutExpiry: without anything that can expire, a log of any age is accepted.
func TestClockWithoutExpiry(t *testing.T) {
	var c *wrongClock
	inBubble(t, func(w *wire) {
		w.stop()
		c.step(10 * Year)
		w.start()
		w.want(201, "collection.create.c", `{}`)
	}, withClock(&c))
}

// TestClockComparedWithServer: the clock is compared with that of a NATS server that has its own.
func TestClockComparedWithServer(t *testing.T) {
	var c *wrongClock
	other := func(o *Options) { o.SameClock = false }

	// The machine slept without noticing. After its clock is set, an operator has to
	// accept it.
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{"defaultTtl":1000}`)
		w.want(201, "document.create.c.a", `{}`)
		time.Sleep(time.Minute)
		w.want(201, "document.create.c.b", `{}`)
		c.pause(2 * time.Hour)
		time.Sleep(12 * time.Second)
		r := w.refused(503, "unavailable", "document.upsert.c.b", `{}`)
		if !strings.Contains(r.message, "behind the NATS server's") {
			t.Error(r)
		}
		w.want(200, "document.get.c.a", "")
		c.set(0)
		time.Sleep(12 * time.Second)
		w.refused(503, "unavailable", "document.upsert.c.b", `{}`)
		w.processor.AcceptClock()
		time.Sleep(2 * time.Second)
		w.want(201, "document.upsert.c.b", `{}`)
		w.want(404, "document.get.c.a", "")
		w.wantSummary(4, "DocumentExpired(a) DocumentExpired(b) DocumentCreated(b)")
	}, withClock(&c), other)

	// A start compares, too.
	inBubble(t, func(w *wire) {
		w.refused(503, "unavailable", "collection.create.c", `{}`)
		c.set(0)
		time.Sleep(2 * time.Second)
		ts := w.tsOf(w.want(201, "collection.create.c", `{}`))
		if ts != time.Now().Unix() {
			t.Errorf("_ts is %d", ts)
		}
		w.restart()
		w.want(201, "document.create.c.a", `{}`)
	}, withClock(&c), other, func(*Options) { c.set(10 * Year) })
}

// TestClockStepsWithServer: a step of the clock is not trusted even if the NATS server's clock,
// on the same machine, makes the same step, whether lapse runs, is restarted after it, or
// is down. To lapse, a machine whose clocks stood still and are then set looks like one
// whose clock is set ahead together with the server's.
func TestClockStepsWithServer(t *testing.T) {
	for _, ahead := range []time.Duration{2 * time.Minute, 20 * time.Minute} {
		for _, how := range []string{"while it runs", "before a restart", "while it is down", "while it starts the first time after a boot"} {
			t.Run(fmt.Sprint(ahead, " ", how), func(t *testing.T) {
				var c *wrongClock
				inBubble(t, func(w *wire) {
					w.want(201, "collection.create.c", `{"defaultTtl":100}`)
					for i := range 20 {
						w.want(201, fmt.Sprintf("document.create.c.%d", i), `{}`)
					}
					time.Sleep(30 * time.Second) // for a comparison with the server's clock
					if how == "while it is down" {
						w.stop()
					}
					c.pause(ahead)
					c.set(0)
					switch how {
					case "before a restart":
						time.Sleep(2 * time.Second)
						w.restart()
					case "while it starts the first time after a boot":
						w.stop()
						w.options.Boot = "second"
						w.start()
						if s := w.status(); s.Clock.Suspect { // a new boot leaves nothing to compare with
							t.Errorf("the status is %+v", s)
						}
						return
					case "while it is down":
						w.start()
					}
					seq := w.end()
					time.Sleep(50 * time.Second) // all comparisons with the server agree
					w.refused(503, "unavailable", "document.upsert.c.0", `{}`)
					s := w.status()
					if off := time.Duration(s.Clock.OffByMs) * time.Millisecond; !s.Clock.Suspect || s.Documents != 20 || (off-ahead).Abs() > 2*time.Second {
						t.Fatalf("the status is %+v", s)
					}
					if w.end() != seq {
						t.Errorf("the log went from %d to %d", seq, w.end())
					}
					w.processor.AcceptClock()
					w.eventually("all have expired", func() bool { return w.status().Documents == 0 && w.status().Overdue == 0 })
					w.restart() // keeps the acceptance
					w.want(201, "document.create.c.0", `{}`)
				}, withClock(&c), func(o *Options) { o.SameClock, o.Boot, o.ClockFile = false, "first", "clock" })
			})
		}
	}
}

// TestClockTakeOver: a standby whose clock was set ahead stays in doubt as the writer,
// whether or not its clock was checked before the step.
func TestClockTakeOver(t *testing.T) {
	for _, looked := range []bool{true, false} {
		inCrew(t, 2, func(c *crew) {
			clock := newWrongClock()
			a, b := c.members[0], c.members[1]
			b.options.Clock = clock.read
			c.start()
			a.want(201, "collection.create.c", `{"defaultTtl":1000}`)
			a.want(201, "document.create.c.a", `{}`)
			b.has(a)
			clock.pause(10 * time.Minute)
			a.want(201, "document.create.c.b", `{}`)
			b.has(a)
			if looked {
				time.Sleep(15 * time.Second)
			}
			clock.set(0)
			a.stop()
			b.becomes(observe.Writer)
			time.Sleep(30 * time.Second)
			b.refused(503, "unavailable", "document.upsert.c.x", `{}`)
			if s := b.status(); !s.Clock.Suspect || s.Documents != 2 {
				t.Errorf("the status is %+v", s)
			}
			b.processor.AcceptClock()
			time.Sleep(2 * time.Second)
			b.want(201, "document.upsert.c.x", `{}`)
		})
	}
}

// TestClockWrongWhileLogUnreachable: if the clock goes wrong while the log is unreachable, pending
// mutations are still judged once it is right again.
func TestClockWrongWhileLogUnreachable(t *testing.T) {
	var c *wrongClock
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{"defaultTtl":100}`)
		w.want(201, "document.create.c.a", `{}`)
		unfill := w.fillLog()
		last := w.publish("document.upsert.c.b", `{}`)
		time.Sleep(5 * time.Second)
		c.set(10 * Year)
		time.Sleep(5 * time.Second)
		unfill()
		time.Sleep(time.Minute)
		w.refused(503, "unavailable", "document.upsert.c.d", `{}`)
		w.want(200, "document.get.c.a", "")
		c.set(0)
		time.Sleep(2 * time.Second)
		w.judged(last)
		w.want(200, "document.get.c.b", "")
		time.Sleep(2 * time.Minute)
		w.wantSummary(2, "DocumentCreated(a) DocumentCreated(b) DocumentExpired(a) DocumentExpired(b)")
		w.wantTimeline(0)
	}, withClock(&c))
}

// TestClockTrimsNothing: retention trims nothing while the clock is ahead, and makes no
// snapshot.
func TestClockTrimsNothing(t *testing.T) {
	var c *wrongClock
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{}`)
		for i := range 50 {
			w.want(201, fmt.Sprintf("document.create.c.%d", i), `{}`)
			w.want(204, fmt.Sprintf("document.delete.c.%d", i), "")
		}
		time.Sleep(10 * time.Minute) // for snapshots
		first := w.stream("LAPSE_main").CachedInfo().State.FirstSeq
		w.want(201, "document.create.c.last", `{}`)
		c.set(10 * Year)
		time.Sleep(2 * clock.Recheck)
		made := w.processor.retention.Made.Load()
		w.check(w.processor.retention.Round(w.ctx()))
		time.Sleep(30 * time.Minute)
		if n := w.processor.retention.Made.Load(); n != made {
			t.Errorf("%d snapshots were made", n-made)
		}
		if got := w.stream("LAPSE_main").CachedInfo().State.FirstSeq; got != first || first != 1 {
			t.Errorf("the log began at %d and begins at %d", first, got)
		}
		w.want(200, "history.c.0", "")
		c.set(0)
		time.Sleep(2 * time.Hour)
		if got := w.stream("LAPSE_main").CachedInfo().State.FirstSeq; got == 1 {
			t.Error("the clock is right again and nothing was trimmed")
		}
		if strings.Contains(w.logs.String(), "retention failed") {
			t.Errorf("what was not tried failed:\n%s", w.logs)
		}
	}, withClock(&c), retaining(time.Hour, time.Minute))
}

// TestClockMetrics: metrics report doubt, offset and refusals.
func TestClockMetrics(t *testing.T) {
	var c *wrongClock
	inBubble(t, func(w *wire) {
		want := func(suspect, offset, refused float64) {
			t.Helper()
			got := gather(t, w.processor.options.Monitor)
			got["lapse_clock_offset_seconds"] = math.Trunc(got["lapse_clock_offset_seconds"])
			got.want(t, metrics{"lapse_clock_suspect": suspect, "lapse_clock_offset_seconds": offset, "lapse_clock_refused_total": refused})
		}
		want(0, 0, 0)
		c.set(-3600 * time.Second)
		w.refused(503, "unavailable", "collection.create.c", `{}`)
		want(1, -3600, 1)
		c.set(30 * time.Second)
		time.Sleep(2 * time.Second)
		want(0, 29, 1) // in two seconds, a 60th of them is followed
	}, withClock(&c))
}

// TestClockAtRandom writes while the clock steps, freezes and drifts, and then checks
// every event against the right clock.
func TestClockAtRandom(t *testing.T) {
	random := stress.Rand(t)
	for _, kind := range []string{"set far", "set near", "anything"} {
		t.Run(kind, func(t *testing.T) {
			for range stress.Pick(1, 100) {
				var c *wrongClock
				inBubble(t, func(w *wire) {
					r := &clockRun{wire: w, clock: c, random: random, kind: kind, told: make(map[string]bool)}
					r.run(stress.Pick(300, 1500))
				}, withClock(&c), func(o *Options) { o.SameClock = random.IntN(2) == 0 })
			}
		})
	}
}

type clockRun struct {
	*wire
	clock  *wrongClock
	random *rand.Rand
	kind   string
	told   map[string]bool // by n in the document: whether the write was acknowledged
	last   uint64          // sequence of the last mutation published

	// least and most are the extreme offsets while the clock could be followed.
	least, most time.Duration
}

func (r *clockRun) run(steps int) {
	began := time.Now()
	r.want(201, "collection.create.c", `{"defaultTtl":60}`)
	for i := range steps {
		r.observe(began)
		r.move()
		r.observe(began)
		r.write(i)
		time.Sleep(time.Duration(r.random.Int64N(int64(5 * time.Second))))
	}
	// The clock is right again; due documents expire.
	r.observe(began)
	r.clock.set(0)
	time.Sleep(2 * time.Second)
	r.judged(r.last)
	r.want(201, "document.upsert.c.last", `{"ttl":100}`)
	time.Sleep(5 * time.Minute)
	if s := r.status(); s.Clock.Suspect || s.Documents != 0 || s.Overdue != 0 || s.MutationsBehind != 0 {
		r.t.Errorf("at the end the status is %+v", s)
	}
	found := make(map[string]int)
	limit := time.Minute + time.Since(began)/clock.FollowRate
	early := r.most - r.least
	if early > 0 {
		early += time.Second // deadlines are whole seconds of either clock
	}
	for _, e := range r.wantTimeline(early) {
		if off := time.UnixMilli(e.Time).Sub(e.at); off > r.most || off < r.least-time.Second || off > limit {
			r.t.Errorf("event %d is stamped %s ahead of the right time, the clock was between %s and %s", e.Seq, off, r.least, r.most)
		}
		if e.Type == schema.DocumentCreated || e.Type == schema.DocumentReplaced {
			var document struct{ N string }
			r.check(json.Unmarshal(e.Body, &document))
			found[document.N]++
		}
	}
	for n, acknowledged := range r.told {
		if acknowledged && found[n] != 1 || !acknowledged && found[n] != 0 {
			r.t.Errorf("write %s: acknowledged %v, %d times in the log", n, acknowledged, found[n])
		}
	}
	if max := int(time.Since(began)/time.Second)*4 + steps*20; r.clock.readings() > max {
		r.t.Errorf("the clock was read %d times in %s", r.clock.readings(), time.Since(began))
	}
}

// observe records the clock's offset if it can be followed.
func (r *clockRun) observe(began time.Time) {
	limit := time.Minute + time.Since(began)/clock.FollowRate
	ahead := r.clock.ahead()
	if standing := !r.clock.stands.IsZero(); ahead.Abs() > limit && !standing {
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
		c.set(0)
	case pick > 8:
	case kind == "set far":
		c.set([]time.Duration{time.Hour, -time.Hour, 10 * Year, -10 * Year, 62 * time.Second, -62 * time.Second}[r.random.IntN(6)])
	case kind == "set near":
		c.step([]time.Duration{time.Second, -time.Second, 29 * time.Second, -29 * time.Second, time.Millisecond}[r.random.IntN(5)])
	case kind == "freeze":
		c.freeze()
	case kind == "drift":
		c.drift((r.random.Float64() - 0.5) / 100)
	}
}

// write writes a document and reads it back, or publishes it as a mutation.
func (r *clockRun) write(i int) {
	n := fmt.Sprint(i)
	body := fmt.Sprintf(`{"n":%q,"ttl":%d}`, n, 1+r.random.IntN(100))
	tail := fmt.Sprintf("document.upsert.c.%d", r.random.IntN(20))
	if r.random.IntN(3) == 0 {
		r.told[n] = true
		r.last = r.publish(tail, body)
		return
	}
	before := r.end()
	switch reply := r.ask(tail, body); {
	case reply.code < 300:
		r.told[n] = true
		if got := r.ask(strings.Replace(tail, "upsert", "get", 1), ""); got.code != 200 && !strings.Contains(body, `"ttl":1}`) {
			r.t.Errorf("write %s is gone at once: %s", n, got)
		}
	case reply.code == 503 && strings.Contains(reply.message, "the clock says"):
		r.told[n] = false
		if after := r.end(); after != before {
			r.t.Errorf("write %s was refused and the log went from %d to %d", n, before, after)
		}
	default:
		r.t.Errorf("write %s: %s", n, reply)
	}
}
