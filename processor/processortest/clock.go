package processortest

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/schema"
)

// Year is of 365 days, for clocks that are far off.
const Year = 365 * 24 * time.Hour

// Clock is a clock that a test sets; the test's own time is the right one.
type Clock struct {
	began time.Time

	mu      sync.Mutex
	off     time.Duration // offset ahead of the right time
	stands  time.Time     // the frozen time; zero if the clock runs
	pausing time.Time     // start of the machine's suspension; zero if it is not suspended
	paused  time.Duration // time suspended, which elapsed time leaves out
	reading int           // number of reads
}

// NewClock returns a clock that is right.
func NewClock() *Clock {
	return &Clock{began: time.Now()}
}

// Read implements clock.Clock.
func (c *Clock) Read() (time.Time, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading++
	return c.wall(), c.now().Sub(c.began) - c.paused
}

// now returns the right time, or the start of the suspension while suspended.
func (c *Clock) now() time.Time {
	if !c.pausing.IsZero() {
		return c.pausing
	}
	return time.Now()
}

// wall returns what the clock shows. The caller holds mu.
func (c *Clock) wall() time.Time {
	if !c.stands.IsZero() {
		return c.stands
	}
	return c.now().Add(c.off)
}

// Readings returns the number of reads.
func (c *Clock) Readings() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reading
}

// Ahead returns the clock's offset from the right time.
func (c *Clock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.wall())
}

// Set sets the clock to an offset from the right time, and lets a frozen one run.
func (c *Clock) Set(ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off, c.stands = ahead, time.Time{}
}

// Step moves the clock by an amount.
func (c *Clock) Step(by time.Duration) { c.Set(c.Ahead() + by) }

// Freeze stops the clock.
func (c *Clock) Freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stands = c.wall()
}

// Pause stops both of the machine's clocks for d, as a suspension does.
func (c *Clock) Pause(d time.Duration) {
	c.mu.Lock()
	c.pausing = time.Now()
	c.mu.Unlock()
	time.Sleep(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pausing = time.Time{}
	c.off -= d
	c.paused += d
}

// WithClock gives the processor a wrongClock, shared with the NATS server.
func WithClock(c **Clock) func(*processor.Options) {
	return func(o *processor.Options) {
		*c = NewClock()
		o.Clock, o.SameClock = (*c).Read, true
	}
}

// Status returns the processor's status.
func (w *Wire) Status() (s schema.Status) {
	w.T.Helper()
	w.Check(json.Unmarshal(w.Want(200, "status", "").Body, &s))
	return s
}

// stored is an event and the right time at which the log stored it: the time of NATS, which
// no test sets.
type stored struct {
	*schema.Event
	At time.Time
}

// timeline reads the whole log.
func (w *Wire) timeline() (events []stored) {
	w.T.Helper()
	log := w.OpenLog()
	consumer, err := log.JS.OrderedConsumer(w.Ctx(), "LAPSE_main", jetstream.OrderedConsumerConfig{})
	w.Check(err)
	messages, err := consumer.Messages()
	w.Check(err)
	defer messages.Stop()
	for end := w.End(); len(events) == 0 || events[len(events)-1].Seq < end; {
		m, err := messages.Next(jetstream.NextContext(w.Ctx()))
		w.Check(err)
		meta, err := m.Metadata()
		w.Check(err)
		events = append(events, stored{log.Decode(meta.Sequence.Stream, m.Subject(), m.Headers(), m.Data()), meta.Timestamp})
	}
	return events
}

// VerifyLog checks the log, and returns it: no event is missing, log time does not go back,
// mutations are judged once and in order, no version ends twice, and none expires before its
// deadline by log time or, by the right clock, earlier than early before it.
func (w *Wire) VerifyLog(early time.Duration) (events []stored) {
	w.T.Helper()
	events = w.timeline()
	made := make(map[schema.Version]stored)
	ended := make(map[schema.Version]uint64)
	cause, at := uint64(0), int64(0)
	for i, e := range events {
		if e.Seq != events[0].Seq+uint64(i) {
			w.T.Fatalf("event %d follows event %d", e.Seq, events[i-1].Seq)
		}
		if e.Type == schema.NoEvent {
			continue
		}
		if e.Time < at {
			w.T.Errorf("event %d: log time goes back", e.Seq)
		}
		at = e.Time
		if e.Cause != 0 {
			if e.Cause != cause+1 && (cause > 0 || events[0].Seq == 1) {
				w.T.Errorf("event %d has the cause %d after %d", e.Seq, e.Cause, cause)
			}
			cause = e.Cause
		}
		if !e.Type.OnDocument() {
			continue
		}
		made[schema.Version(e.Seq)] = e
		if e.Previous == 0 {
			continue
		}
		if before, ok := ended[e.Previous]; ok {
			w.T.Errorf("event %d ends version %d, as event %d did", e.Seq, e.Previous, before)
		}
		ended[e.Previous] = e.Seq
		if prior, ok := made[e.Previous]; e.Type == schema.DocumentExpired && ok {
			due := time.Unix(prior.At.Unix()+int64(e.Deadline.TTL), 0)
			if e.Time < e.Deadline.At*1000 || e.Deadline.At != prior.Time/1000+int64(e.Deadline.TTL) || e.At.Before(due.Add(-early)) {
				w.T.Errorf("event %d expires version %d, of %s, at %s, %s early; %s is explained", e.Seq, e.Previous, prior.At, e.At, due.Sub(e.At), early)
			}
		}
	}
	return events
}
