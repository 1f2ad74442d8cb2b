package processor

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/schema"
)

const Year = 365 * 24 * time.Hour

// wrongClock is a clock that a test sets; the time of the test itself is the
// right one.
type wrongClock struct {
	began time.Time

	mu      sync.Mutex
	off     time.Duration // that it is ahead
	rate    float64       // that it gains
	since   time.Time     // of the rate
	stands  time.Time     // what it says while it stands still, else zero
	pausing time.Time     // when the machine was suspended, else zero
	paused  time.Duration // that it has not seen passing
	reading int           // how often it was read
}

func newWrongClock() *wrongClock {
	return &wrongClock{began: time.Now(), since: time.Now()}
}

// read is the Clock.
func (c *wrongClock) read() (time.Time, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading++
	return c.wall(), c.now().Sub(c.began) - c.paused
}

// now is the right time, as far as the machine sees it passing.
func (c *wrongClock) now() time.Time {
	if !c.pausing.IsZero() {
		return c.pausing
	}
	return time.Now()
}

func (c *wrongClock) wall() time.Time {
	if !c.stands.IsZero() {
		return c.stands
	}
	now := c.now()
	return now.Add(c.off + time.Duration(c.rate*float64(now.Sub(c.since))))
}

// readings is how often it was read.
func (c *wrongClock) readings() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reading
}

// ahead is how far it is ahead.
func (c *wrongClock) ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.wall())
}

// set sets it ahead of the right time.
func (c *wrongClock) set(ahead time.Duration) { c.change(ahead, 0) }

// step sets it by some amount.
func (c *wrongClock) step(by time.Duration) { c.change(c.ahead()+by, 0) }

// drift has it gain so much for each second.
func (c *wrongClock) drift(rate float64) { c.change(c.ahead(), rate) }

func (c *wrongClock) change(ahead time.Duration, rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off, c.rate, c.since, c.stands = ahead, rate, time.Now(), time.Time{}
}

// freeze has it stand still.
func (c *wrongClock) freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stands = c.wall()
}

// pause has the machine's clocks stand still for some time, as while it is
// suspended.
func (c *wrongClock) pause(d time.Duration) {
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

// withClock gives the processor a clock that can be wrong, and says that the
// NATS server has the same one.
func withClock(c **wrongClock) func(*Options) {
	return func(o *Options) {
		*c = newWrongClock()
		o.Clock, o.SameClock = (*c).read, true
	}
}

// status is what the processor says of itself.
func (w *wire) status() (s schema.Status) {
	w.t.Helper()
	w.check(json.Unmarshal(w.want(200, "status", "").body, &s))
	return s
}

// stored is an event, and when the log got it by the right clock.
type stored struct {
	*schema.Event
	at time.Time
}

// timeline reads the whole log with its times.
func (w *wire) timeline() (events []stored) {
	w.t.Helper()
	log, err := eventlog.Open(w.ctx(), w.connections(), eventlog.Config{Database: "main"})
	w.check(err)
	consumer, err := log.JS.OrderedConsumer(w.ctx(), "LAPSE_main", jetstream.OrderedConsumerConfig{})
	w.check(err)
	messages, err := consumer.Messages()
	w.check(err)
	defer messages.Stop()
	for end := w.end(); len(events) == 0 || events[len(events)-1].Seq < end; {
		m, err := messages.Next(jetstream.NextContext(w.ctx()))
		w.check(err)
		meta, err := m.Metadata()
		w.check(err)
		events = append(events, stored{log.Decode(meta.Sequence.Stream, m.Subject(), m.Headers(), m.Data()), meta.Timestamp})
	}
	return events
}
