package clock

import (
	"fmt"
	"time"

	"github.com/lapsedb/lapse/processor/observe"
)

// guard judges the wall clock, which anyone may set. It compares each reading with
// elapsed monotonic time, with the log's end, and with the NATS server's clock if
// that is another one. It does not follow a wrong reading: time then continues from
// the last right one.
//
// Elapsed time decides: other clocks that agree with a step do not make it right,
// since one time server may have set them all. Only accept does.
//
// It is pure and not safe for concurrent use. A reading is a wall time and the time
// elapsed since a fixed moment.
type guard struct {
	maxStep     time.Duration // largest clock step that is accepted
	maxDowntime time.Duration // largest distance ahead of the log's end at a start
	end         time.Time     // of the log at the start; 1970 if it is empty
	unbounded   bool          // nothing in the log can expire: maxDowntime does not apply

	begun   bool          // a reading agreed with the log's end
	began   time.Duration // elapsed at begin
	checked time.Duration // elapsed at the last judgement

	// origin is the wall time at elapsed 0; zero if no reading was ever right. Readings are
	// compared with it and not with the last reading, since a clock that stands still or
	// runs at a wrong rate differs little between two readings. It follows the clock
	// slowly, see followRate.
	origin time.Time

	given instant // the time, from the last right reading on
	doubt *doubt  // nil if the last reading was right

	server     serverReading
	overridden bool // accept overrules the server's clock until both agree
}

// followRate bounds drift: origin moves by at most 1/followRate of elapsed time, a second a
// minute. Clocks are slewed by 1/2000. Small steps add up to no more than this and one
// maxStep.
const followRate = 60

// recheck is the shortest duration of a doubt, so that a clock that goes to and fro
// causes little work and few log lines.
const recheck = time.Second

// serverStale is how long a reading of the server's clock counts.
const serverStale = 3 * serverInterval

// instant maps elapsed time to time: wall at elapsed, and never before floor, the
// latest time returned so far.
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

// until returns how long after elapsed at reaches moment. While time stands at the
// floor that is more than moment minus now.
func (i *instant) until(moment time.Time, elapsed time.Duration) time.Duration {
	if !i.floor.Before(moment) {
		return 0
	}
	return max(0, moment.Sub(i.wall.Add(elapsed-i.elapsed)))
}

// serverReading is the server's time at elapsed, by a round trip of round.
type serverReading struct {
	time    time.Time // zero if it was never asked
	elapsed time.Duration
	round   time.Duration
}

// doubt is why the clock is not trusted. It ends with a right reading, or with accept.
type doubt struct {
	kind  doubtKind
	wall  time.Time     // the reading
	off   time.Duration // positive if the reading is ahead of the expected time
	began time.Duration // elapsed at the first wrong reading
}

type doubtKind int

const (
	stepped    doubtKind = iota // set, or standing still, by elapsed time
	disagreed                   // with the NATS server's clock
	aheadOfLog                  // by more than maxDowntime at the start
	behindLog                   // by more than maxStep at the start
)

// newGuard returns a guard with the origin of an earlier process, zero if there was
// none. For end and unbounded see begin.
func newGuard(maxStep, maxDowntime time.Duration, origin time.Time, end int64, unbounded bool, elapsed time.Duration) *guard {
	g := &guard{maxStep: maxStep, maxDowntime: maxDowntime, origin: origin, checked: elapsed,
		given: instant{wall: origin}}
	g.begin(end, unbounded, elapsed)
	return g
}

// begin compares the next readings with the log's end, too, in Unix ms, 0 if it is empty.
// A doubt by elapsed time stays. An accepted clock is not compared.
func (g *guard) begin(end int64, unbounded bool, elapsed time.Duration) {
	g.end, g.unbounded = time.UnixMilli(end), unbounded || end == 0
	g.begun, g.began = g.overridden, elapsed
	now := g.given.at(elapsed)
	if now.Before(g.end) {
		now = g.end
	}
	g.given = instant{wall: now, elapsed: elapsed, floor: now}
}

// check judges a reading and updates given, unless a wrong reading is younger than recheck.
// It reports whether it has judged.
func (g *guard) check(wall time.Time, elapsed time.Duration) (judged bool) {
	wall, elapsed = wall.Round(0), max(elapsed, g.checked)
	if g.doubt != nil && elapsed-g.checked < recheck {
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
		if kind == behindLog { // time stands at the log's end until the clock reaches it
			g.given.wall = wall
		}
	}
	g.checked = elapsed
	return true
}

// judge reports whether a reading is right, and how far it is off if not. Three witnesses,
// in this order: the end of the log, until a reading has agreed with it once; the NATS
// server's clock, while a reading of it is fresh; elapsed time since origin, always.
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
		return disagreed, g.doubt.off, false // a lost witness does not end its doubt
	}
	off = g.off(wall, elapsed)
	return stepped, off, off.Abs() <= g.maxStep
}

// off returns how far a reading is ahead of the expected time.
func (g *guard) off(wall time.Time, elapsed time.Duration) time.Duration {
	if g.origin.IsZero() {
		return 0
	}
	return wall.Sub(g.origin.Add(elapsed))
}

// follow continues time from a right reading, and moves origin towards it, within
// followRate.
func (g *guard) follow(wall time.Time, elapsed time.Duration) {
	off, most := g.off(wall, elapsed), (elapsed-g.checked)/followRate
	if g.origin.IsZero() {
		g.origin = wall.Add(-elapsed)
	} else {
		g.origin = g.origin.Add(max(-most, min(off, most)))
	}
	g.begun, g.doubt = true, nil
	g.given.wall, g.given.elapsed = wall, elapsed
}

// accept makes a reading the right one, against all evidence. Time does not go
// back: it stands still until the clock reaches it.
func (g *guard) accept(wall time.Time, elapsed time.Duration) {
	elapsed = max(elapsed, g.checked)
	g.given.floor = g.given.at(elapsed)
	g.origin, g.overridden = time.Time{}, true
	g.follow(wall.Round(0), elapsed)
	g.checked = elapsed
}

// hear stores the server's time, read by a round trip of round that ended at elapsed.
func (g *guard) hear(server time.Time, elapsed, round time.Duration) {
	g.server = serverReading{time: server, elapsed: elapsed - round/2, round: round}
}

// reason describes the doubt in a line.
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
