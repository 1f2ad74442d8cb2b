package clock

import (
	"fmt"
	"time"

	"github.com/lapsedb/lapse/processor/observe"
)

// guard judges a clock that anybody may set: it compares what the clock says
// with the time that has passed by one that nobody sets, with where the log
// ends, and with the NATS server's clock if that is another one. What it finds
// wrong is not followed: time then goes on from where the clock was last right.
//
// Elapsed time decides: other clocks that agree with a step never make it
// believed, since one time server may have set them all. Only accept does.
//
// It is pure and not safe for concurrent use. Readings come as the time of day
// and what has elapsed since any fixed moment.
type guard struct {
	maxStep     time.Duration // that the clock may be off and is still followed
	maxDowntime time.Duration // that it may be ahead of the log's end at the start
	end         time.Time     // of the log at the start; 1970 for an empty one
	unbounded   bool          // the log has nothing that could expire: it may be as old as it likes

	begun   bool // the clock was compared with the log's end, and right
	began   time.Duration
	checked time.Duration // elapsed at the last judgement

	// origin is what the clock said when nothing had elapsed; zero if it was never
	// believed. The clock is compared with that: not with its last reading, since
	// one that runs at the wrong rate, or stands still, differs little from reading
	// to reading. It follows the clock, but slowly.
	origin time.Time

	given instant // what follows from the last time that the clock was right
	doubt *doubt  // why it is not, nil if it is

	server     serverReading
	overridden bool // the clock was accepted, whatever the server says, until they agree
}

// followRate is how many times faster than the clock may drift time passes.
// Clocks are slewed by 1/2000; what is set in small steps adds up to no more
// than this and one step.
const FollowRate = 60

// recheck is how long a doubt lasts at least, so that a clock that goes to and
// fro makes little work and few lines in the log.
const Recheck = time.Second

// serverStale is how long the server's time is a witness.
const serverStale = 3 * serverInterval

// instant is a moment from which time goes on. It never goes back: floor is
// the latest that was given out before it.
type instant struct {
	wall    time.Time
	elapsed time.Duration
	floor   time.Time
}

// at returns the time at elapsed.
func (i *instant) at(elapsed time.Duration) time.Time {
	now := i.wall.Add(elapsed - i.elapsed)
	if now.Before(i.floor) {
		return i.floor
	}
	return now
}

// until is how long after elapsed it takes to a moment, if the clock goes on as
// it did. While time stands still that is more than what it has left to go.
func (i *instant) until(moment time.Time, elapsed time.Duration) time.Duration {
	if !i.floor.Before(moment) {
		return 0
	}
	return max(0, moment.Sub(i.wall.Add(elapsed-i.elapsed)))
}

// serverReading is what the server's clock said, by a message that took round.
type serverReading struct {
	time    time.Time // zero if it was never asked
	elapsed time.Duration
	round   time.Duration
}

// doubt is why a clock is not believed.
type doubt struct {
	kind  doubtKind
	wall  time.Time     // what it said
	off   time.Duration // ahead of what it should say, if positive
	began time.Duration // elapsed then
}

type doubtKind int

const (
	stepped    doubtKind = iota // it was set, or stands still
	disagreed                   // the NATS server's says something else
	aheadOfLog                  // at the start
	behindLog
)

// newGuard returns a guard that continues with the origin of an earlier one, zero
// if there was none, over a log for begin.
func newGuard(maxStep, maxDowntime time.Duration, origin time.Time, end int64, unbounded bool, elapsed time.Duration) *guard {
	g := &guard{maxStep: maxStep, maxDowntime: maxDowntime, origin: origin, checked: elapsed,
		given: instant{wall: origin}}
	g.begin(end, unbounded, elapsed)
	return g
}

// begin has the clock compared with the end of a log, in ms, 0 if it is empty, in
// addition to elapsed time: a log that others wrote does not end a doubt. A clock
// that was accepted, whatever speaks against it, is not compared.
func (g *guard) begin(end int64, unbounded bool, elapsed time.Duration) {
	g.end, g.unbounded = time.UnixMilli(end), unbounded || end == 0
	g.begun, g.began = g.overridden, elapsed
	now := g.given.at(elapsed)
	if now.Before(g.end) {
		now = g.end
	}
	g.given = instant{wall: now, elapsed: elapsed, floor: now}
}

// check judges a reading, unless there was one just now that was wrong.
// Afterwards given says what time it is.
func (g *guard) check(wall time.Time, elapsed time.Duration) (judged bool) {
	wall, elapsed = wall.Round(0), max(elapsed, g.checked)
	if g.doubt != nil && elapsed-g.checked < Recheck {
		return false
	}
	g.given.floor = g.given.at(elapsed)
	kind, off, right := g.judge(wall, elapsed)
	if right {
		g.follow(wall, elapsed)
	} else {
		if g.doubt == nil {
			g.doubt = &doubt{began: elapsed}
		}
		g.doubt.kind, g.doubt.wall, g.doubt.off = kind, wall, off
		g.given.wall, g.given.elapsed = g.given.floor, elapsed
		if kind == behindLog { // time stands where the log ends until the clock gets there
			g.given.wall = wall
		}
	}
	g.checked = elapsed
	return true
}

// judge tells whether a reading is right, and how far it is off if not.
func (g *guard) judge(wall time.Time, elapsed time.Duration) (kind doubtKind, off time.Duration, right bool) {
	if !g.begun {
		ahead := wall.Sub(g.end)
		switch {
		case ahead < -g.maxStep:
			return behindLog, ahead, false
		case ahead > g.maxDowntime+elapsed-g.began && !g.unbounded:
			return aheadOfLog, ahead, false
		}
	}
	if !g.server.time.IsZero() && elapsed-g.server.elapsed < serverStale {
		ahead := wall.Sub(g.server.time.Add(elapsed - g.server.elapsed))
		if ahead.Abs() <= g.maxStep+g.server.round/2 {
			g.overridden = false
		} else if !g.overridden {
			return disagreed, ahead, false
		}
	} else if g.doubt != nil && g.doubt.kind == disagreed {
		return disagreed, g.doubt.off, false // that nobody says so any more makes it no better
	}
	off = g.off(wall, elapsed)
	return stepped, off, off.Abs() <= g.maxStep
}

// off is how far a reading is ahead of what it should be.
func (g *guard) off(wall time.Time, elapsed time.Duration) time.Duration {
	if g.origin.IsZero() {
		return 0
	}
	return wall.Sub(g.origin.Add(elapsed))
}

// follow has time go on from a reading.
func (g *guard) follow(wall time.Time, elapsed time.Duration) {
	off, most := g.off(wall, elapsed), (elapsed-g.checked)/FollowRate
	if g.origin.IsZero() {
		g.origin = wall.Add(-elapsed)
	} else {
		g.origin = g.origin.Add(max(-most, min(off, most)))
	}
	g.begun, g.doubt = true, nil
	g.given.wall, g.given.elapsed = wall, elapsed
}

// accept takes a reading for right, whatever speaks against it. Time still does
// not go back: it stands still until the clock gets there.
func (g *guard) accept(wall time.Time, elapsed time.Duration) {
	elapsed = max(elapsed, g.checked)
	g.given.floor = g.given.at(elapsed)
	g.origin, g.overridden = time.Time{}, true
	g.follow(wall.Round(0), elapsed)
	g.checked = elapsed
}

// hear takes note of the server's time, which it said between two moments
// round apart, the second of them at elapsed.
func (g *guard) hear(server time.Time, elapsed, round time.Duration) {
	g.server = serverReading{time: server, elapsed: elapsed - round/2, round: round}
}

// reason says in a line what is wrong.
func (g *guard) reason() string {
	d := g.doubt
	wall, end := observe.Timestamp(d.wall), observe.Timestamp(g.end)
	switch d.kind {
	case aheadOfLog:
		return fmt.Sprintf("the log ends at %s and the clock says %s, more than %s later", end, wall, g.maxDowntime)
	case behindLog:
		return fmt.Sprintf("the log ends at %s and the clock says %s, which is earlier", end, wall)
	case disagreed:
		return fmt.Sprintf("the clock says %s, %s the NATS server's", wall, aheadOf(d.off))
	default:
		return fmt.Sprintf("the clock says %s, %s what it should say by the time that has passed", wall, aheadOf(d.off))
	}
}

func aheadOf(off time.Duration) string {
	amount := off.Abs().Round(time.Second).String()
	if off < 0 {
		return amount + " behind"
	}
	return amount + " ahead of"
}
