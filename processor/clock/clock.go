package clock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Clock tells the time of day, which anybody may set, and how much has elapsed
// since any fixed moment, see Options.Boot, by a clock that nobody sets. Where that one does not
// count the time that the machine sleeps, waking up looks as if the clock had
// been set. The time of day is to be read first. It may be called from any
// goroutine.
type Clock func() (wall time.Time, elapsed time.Duration)

// millis is the time of day in ms, right or wrong.
func (c Clock) Millis() int64 {
	wall, _ := c()
	return wall.UnixMilli()
}

// goClock is Go's.
func GoClock() Clock {
	began := time.Now()
	return func() (time.Time, time.Duration) {
		now := time.Now()
		return now, now.Sub(began)
	}
}

const (
	serverInterval = 10 * time.Second // between two looks at the NATS server's clock
	ServerPatience = 5 * time.Second
)

// timekeeper says what time it is, as far as its guard believes the clock.
// Any goroutine may ask.
type Timekeeper struct {
	clock  Clock
	memory clockMemory
	events observe.EventListener
	now    atomic.Pointer[instant] // from which time goes on

	mu    sync.Mutex
	guard *guard
	fault *schema.Error // what writes are told, nil while the clock is believed

	Refused atomic.Uint64 // requests, while it was not
}

// clockConfig is what a clock is judged by; see Options.
type Config struct {
	Clock       Clock
	FS          vfs.FS
	File        string // remembers the clock over restarts, "" for none
	Boot        string
	MaxStep     time.Duration
	MaxDowntime time.Duration
	Events      observe.EventListener
}

// newTimekeeper returns one over a log that ends at a time, in ms, 0 if it is
// empty; unbounded says that nothing in it could expire.
func New(c Config, end int64, unbounded bool) *Timekeeper {
	k := &Timekeeper{clock: c.Clock, memory: clockMemory{fs: c.FS, path: c.File, boot: c.Boot}, events: c.Events}
	_, elapsed := k.clock()
	k.guard = newGuard(c.MaxStep, c.MaxDowntime, k.memory.load(), end, unbounded, elapsed)
	k.publish()
	return k
}

// begin has the clock compared, at once, with the end of a log that others wrote
// meanwhile. A doubt stays: becoming the writer makes no clock right.
func (k *Timekeeper) Begin(end int64, unbounded bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	wall, elapsed := k.clock()
	k.guard.begin(end, unbounded, elapsed)
	k.judge(wall, elapsed)
	k.publish()
}

// judge has the guard look at a reading, and tells what it thinks of it.
func (k *Timekeeper) judge(wall time.Time, elapsed time.Duration) {
	if before := k.guard.doubt; k.guard.check(wall, elapsed) {
		k.tell(before, elapsed)
		k.publish()
	}
}

func (k *Timekeeper) publish() {
	given := k.guard.given
	k.now.Store(&given)
}

// millis is the time in ms. It never goes back.
func (k *Timekeeper) Millis() int64 {
	_, elapsed := k.clock()
	return k.now.Load().at(elapsed).UnixMilli()
}

// until is how long it takes to a second.
func (k *Timekeeper) Until(second int64) time.Duration {
	_, elapsed := k.clock()
	return k.now.Load().until(time.Unix(second, 0), elapsed)
}

// second is the second by which deadlines are judged for a state at a log time,
// in ms.
func (k *Timekeeper) Second(logTime int64) int64 { return max(k.Millis(), logTime) / 1000 }

// check looks at the clock. It returns the time in ms, or what to tell those
// who want something changed while that is not known.
func (k *Timekeeper) Check() (now int64, fault *schema.Error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	wall, elapsed := k.clock()
	k.judge(wall, elapsed)
	return k.guard.given.at(elapsed).UnixMilli(), k.fault
}

// tell says what the guard thinks now, also to those who listen if it thought
// otherwise before.
func (k *Timekeeper) tell(before *doubt, elapsed time.Duration) {
	switch after := k.guard.doubt; {
	case after != nil:
		k.fault = schema.ErrUnavailable.With("writes are refused and nothing expires: %s; set the clock right, or have it accepted as it is (SIGUSR1 to lapse serve, or start it with --accept-clock)", k.guard.reason())
		if before == nil {
			k.events(observe.ClockDoubted{Why: k.guard.reason(), Off: after.off})
		}
	case before != nil:
		k.fault = nil
		k.events(observe.ClockBelieved{After: elapsed - before.began, Refused: k.Refused.Load()})
	}
}

// accept takes the clock for right if it was not believed.
func (k *Timekeeper) Accept() {
	k.Check() // what nobody has looked at yet may be what is to be accepted
	k.mu.Lock()
	defer k.mu.Unlock()
	wall, elapsed := k.clock()
	before := k.guard.doubt
	if before == nil {
		k.events(observe.ClockAccepted{Wall: wall, Needless: true})
		return
	}
	k.guard.accept(wall, elapsed)
	k.fault = nil
	k.events(observe.ClockAccepted{Wall: wall, Off: before.off, Still: k.guard.given.floor.Sub(wall)})
	k.publish()
}

// compare asks for the NATS server's time and notes it.
func (k *Timekeeper) Compare(ctx context.Context, ask func(context.Context) (time.Time, error)) error {
	ctx, cancel := context.WithTimeout(ctx, ServerPatience)
	defer cancel()
	_, before := k.clock()
	server, err := ask(ctx)
	if err != nil {
		return err
	}
	_, after := k.clock()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.guard.hear(server, after, after-before)
	return nil
}

// watch looks at the clock now and then, until ctx ends, also while nobody else
// does, and remembers where it was believed. It asks the NATS server for its
// time, if ask is not nil. A server that is not there for a while is a matter for
// others, and so is a disk that takes nothing: what was stored before still holds.
func (k *Timekeeper) Watch(ctx context.Context, ask func(context.Context) (time.Time, error)) {
	defer func() { _ = k.Remember() }()
	next := time.NewTicker(serverInterval)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			if ask != nil {
				_ = k.Compare(ctx, ask)
			}
			k.Check()
			_ = k.Remember()
		case <-ctx.Done():
			return
		}
	}
}

// remember stores where the clock was believed, for the next start.
func (k *Timekeeper) Remember() error {
	k.mu.Lock()
	origin := k.guard.origin
	k.mu.Unlock()
	return k.memory.store(origin)
}

// status says how the clock stands.
func (k *Timekeeper) Status() schema.Clock {
	k.Check()
	k.mu.Lock()
	defer k.mu.Unlock()
	wall, elapsed := k.clock()
	s := schema.Clock{Refused: k.Refused.Load()}
	if d := k.guard.doubt; d != nil {
		s.Suspect, s.OffByMs, s.ForMs, s.Reason = true, d.off.Milliseconds(), (elapsed - d.began).Milliseconds(), k.guard.reason()
	} else {
		s.OffByMs = k.guard.off(wall.Round(0), elapsed).Milliseconds()
	}
	return s
}
