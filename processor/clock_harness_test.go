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

// wrongClock is a clock that a test sets; the test's own time is the right one.
type wrongClock struct {
	began time.Time

	mu      sync.Mutex
	off     time.Duration // offset ahead of the right time
	rate    float64       // seconds that it gains per second
	since   time.Time     // start of rate
	stands  time.Time     // the frozen time; zero if the clock runs
	pausing time.Time     // start of the machine's suspension; zero if it is not suspended
	paused  time.Duration // time suspended, which elapsed time leaves out
	reading int           // number of reads
}

func newWrongClock() *wrongClock {
	return &wrongClock{began: time.Now(), since: time.Now()}
}

// read implements clock.Clock.
func (c *wrongClock) read() (time.Time, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading++
	return c.wall(), c.now().Sub(c.began) - c.paused
}

// now returns the right time, or the start of the suspension while suspended.
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

// readings returns the number of reads.
func (c *wrongClock) readings() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reading
}

// ahead returns the clock's offset from the right time.
func (c *wrongClock) ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.wall())
}

// set sets the clock to an offset from the right time.
func (c *wrongClock) set(ahead time.Duration) { c.change(ahead, 0) }

// step moves the clock by an amount.
func (c *wrongClock) step(by time.Duration) { c.change(c.ahead()+by, 0) }

// drift makes the clock gain rate seconds per second.
func (c *wrongClock) drift(rate float64) { c.change(c.ahead(), rate) }

func (c *wrongClock) change(ahead time.Duration, rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off, c.rate, c.since, c.stands = ahead, rate, time.Now(), time.Time{}
}

// freeze stops the clock.
func (c *wrongClock) freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stands = c.wall()
}

// pause stops both of the machine's clocks for d, as a suspension does.
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

// withClock gives the processor a wrongClock, shared with the NATS server.
func withClock(c **wrongClock) func(*Options) {
	return func(o *Options) {
		*c = newWrongClock()
		o.Clock, o.SameClock = (*c).read, true
	}
}

// status returns the processor's status.
func (w *wire) status() (s schema.Status) {
	w.t.Helper()
	w.check(json.Unmarshal(w.want(200, "status", "").body, &s))
	return s
}

// stored is an event and the right time at which the log stored it.
type stored struct {
	*schema.Event
	at time.Time
}

// timeline reads the whole log.
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
