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

// A Timekeeper stands between the machine's clock and the writer. The writer asks for the
// time in each turn (Check), and gets one that never goes back, with an error if it is not
// to be trusted. Reads ask without a check (Millis, Second): they need a time at once, and
// compare deadlines with the one that the guard gave last, continued by elapsed time.
//
// guard, which judges, is not safe for concurrent use: mu is held around it. What it has
// given is copied to now, an atomic pointer, so that reads take no lock.

// Clock returns the wall clock, which anyone may set, and the time elapsed since a
// fixed moment (see Config.Boot) by a monotonic clock. It reads the wall clock
// first. If the monotonic clock stops while the machine sleeps, waking up looks
// like a step of the wall clock. Safe for concurrent use.
type Clock func() (wall time.Time, elapsed time.Duration)

// Millis returns the wall clock in Unix ms, unchecked.
func (c Clock) Millis() int64 {
	wall, _ := c()
	return wall.UnixMilli()
}

// GoClock returns the clock of package time, elapsed since the call.
func GoClock() Clock {
	began := time.Now()
	return func() (time.Time, time.Duration) {
		now := time.Now()
		return now, now.Sub(began)
	}
}

const (
	serverInterval = 10 * time.Second // between two readings of the NATS server's clock
	serverTimeout  = 5 * time.Second  // of one
)

// Timekeeper returns the time that its guard derives from the clock. Safe for concurrent
// use.
//
// A manual one (manual.go) has no guard: its owner sets it, and it is always trusted.
type Timekeeper struct {
	clock  Clock
	memory memory
	events observe.EventListener
	now    atomic.Pointer[instant] // copy of guard.given

	mu    sync.Mutex
	guard *guard        // nil for a manual clock
	fault *schema.Error // the reply to writes; nil while the clock is trusted
	runs  bool          // it shows another time without Set

	Refused atomic.Uint64 // requests rejected because of fault
}

// Config configures a Timekeeper.
type Config struct {
	Clock       Clock
	FS          vfs.FS
	File        string        // keeps the clock's origin over restarts; "" for none
	Boot        string        // names the moment from which Clock's elapsed time counts
	MaxStep     time.Duration // largest clock step that is accepted
	MaxDowntime time.Duration // largest distance from the log's end to the clock at a start
	Events      observe.EventListener
}

// New returns a Timekeeper for a log that ends at end, in Unix ms, 0 if it is empty.
// unbounded says that nothing in it can expire, so any MaxDowntime is accepted.
func New(c Config, end int64, unbounded bool) *Timekeeper {
	k := &Timekeeper{clock: c.Clock, runs: true, memory: memory{fs: c.FS, path: c.File, boot: c.Boot}, events: c.Events}
	_, elapsed := k.clock()
	k.guard = newGuard(c.MaxStep, c.MaxDowntime, k.memory.load(), end, unbounded, elapsed)
	k.publish()
	return k
}

// Begin compares the clock with the end of a log that another writer has extended, in Unix
// ms. A doubt stays: becoming the writer makes no clock right.
func (k *Timekeeper) Begin(end int64, unbounded bool) {
	if k.Manual() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	wall, elapsed := k.clock()
	k.guard.begin(end, unbounded, elapsed)
	k.judge(wall, elapsed)
	k.publish()
}

// judge checks a reading and reports a change of the verdict. The caller holds mu.
func (k *Timekeeper) judge(wall time.Time, elapsed time.Duration) {
	if before := k.guard.doubt; k.guard.check(wall, elapsed) {
		k.report(before, elapsed)
		k.publish()
	}
}

// publish lets readers see the time that the guard gives.
func (k *Timekeeper) publish() {
	given := k.guard.given
	k.now.Store(&given)
}

// Millis returns the time in Unix ms. It never goes back.
func (k *Timekeeper) Millis() int64 {
	_, elapsed := k.clock()
	return k.now.Load().at(elapsed).UnixMilli()
}

// Until returns how long it takes until a Unix second, 0 if it has passed. While time
// stands still, waiting for the clock, that is longer than the difference.
func (k *Timekeeper) Until(second int64) time.Duration {
	_, elapsed := k.clock()
	return k.now.Load().until(time.Unix(second, 0), elapsed)
}

// Second returns the Unix second that deadlines are compared with: now, or the log
// time (Unix ms) if that is later.
func (k *Timekeeper) Second(logTime int64) int64 { return max(k.Millis(), logTime) / 1000 }

// Check reads the clock. It returns the time in Unix ms, and the error for writes if the
// clock is not trusted: the 503 that they get. The time is then that of the last right
// reading, continued by elapsed time.
func (k *Timekeeper) Check() (now int64, fault *schema.Error) {
	if k.Manual() {
		return k.Millis(), nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	wall, elapsed := k.clock()
	k.judge(wall, elapsed)
	return k.guard.given.at(elapsed).UnixMilli(), k.fault
}

// report sets fault, and emits an event if the verdict changed.
func (k *Timekeeper) report(before *doubt, elapsed time.Duration) {
	switch after := k.guard.doubt; {
	case after != nil:
		k.fault = schema.ErrUnavailable.With("writes are rejected and nothing expires: %s; set the clock right, or accept it as it is (SIGUSR1 to lapse serve, or start it with --accept-clock)", k.guard.reason())
		if before == nil {
			k.events(observe.ClockDoubted{Why: k.guard.reason(), Off: after.off})
		}
	case before != nil:
		k.fault = nil
		k.events(observe.ClockTrusted{After: elapsed - before.began, Refused: k.Refused.Load()})
	}
}

// Accept makes the present reading the right one, if the clock is not trusted.
func (k *Timekeeper) Accept() {
	if k.Manual() {
		return
	}
	k.Check() // the step to accept may not have been read yet
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

// Compare reads the NATS server's time with ask, for the next check. The round trip bounds
// how wrong the comparison may be; an error leaves the last reading.
func (k *Timekeeper) Compare(ctx context.Context, ask func(context.Context) (time.Time, error)) error {
	if k.Manual() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
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

// Watch checks the clock periodically until ctx ends, and stores its origin. It
// compares it with the NATS server's time if ask is not nil. It ignores errors:
// others report an unreachable server, and after a failed write the stored origin
// still holds.
func (k *Timekeeper) Watch(ctx context.Context, ask func(context.Context) (time.Time, error)) {
	if k.Manual() {
		return
	}
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

// Remember stores the clock's origin for the next start.
func (k *Timekeeper) Remember() error {
	if k.Manual() {
		return nil
	}
	k.mu.Lock()
	origin := k.guard.origin
	k.mu.Unlock()
	return k.memory.store(origin)
}

// Status returns the clock's part of the status.
func (k *Timekeeper) Status() schema.Clock {
	if k.Manual() {
		return schema.Clock{}
	}
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
