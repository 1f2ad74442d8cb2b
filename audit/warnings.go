package audit

import (
	"encoding/binary"

	"github.com/lapsedb/lapse/schema"
)

// A missing warning is a finding only if lapse had time for it. The log must have an event
// before the deadline and at least the grace after the warning was due. If a late event
// shows that lapse was catching up, the grace begins there.
//
//	       warningDue           from + grace        deadline
//	───────────┼───────────────────┼───────────────────┼────► log time
//	           │ a late event      │ an event here     │
//	           │ moves from        │ makes it missing  │

// closedGrace is the grace in ms of a warning that can no longer come; lead is the time
// from its due second to the deadline. openGrace is that of a warning that may still come.
func closedGrace(lead int64) int64 { return max(1_000, min(5_000, lead/2)) }
func openGrace(int64) int64        { return grace }

// Lateness of an expiry or warning, in ms. From lateFrom on it is late: lapse was down or
// overloaded. An expiry less than onTime late shows that lapse ran before it, and should
// have warned if the warning was due surelyUp or more before the deadline.
const (
	lateFrom = 1000
	onTime   = 500
	surelyUp = 3_000
)

// documentExpiring audits a warning. It may be late, but not too early, and never twice
// for one deadline.
func (a *Auditor) documentExpiring(e *schema.Event) error {
	c, l, err := a.life(e)
	if err != nil {
		return err
	}
	a.onTime(c, l, e)
	a.ends(c, l, e)
	if l.phase != alive || l.version != uint64(e.Previous) {
		return nil
	}
	at, seconds, by := c.deadline(l)
	before := int64(c.policy.WarnBefore)
	switch {
	case !c.known:
		at = e.Deadline.At
	case l.held:
		a.against(EarlyWarn, e, "version %d is held", l.version)
	case by == schema.NoRule:
		a.against(Never, e, "version %d has no deadline", l.version)
	case before == 0:
		a.against(EarlyWarn, e, "the collection has no warnBefore")
	case at-before > second(e.Time):
		a.against(EarlyWarn, e, "version %d was warned of at %s, and was to be from %s on (%d s before %s)", l.version, clock(second(e.Time)), clock(at-before), before, clock(at))
	case l.warnedOf(at):
		a.against(WarnedTwice, e, "version %d has been warned of %s before", l.version, clock(at))
	}
	if by != schema.NoRule {
		a.statedDeadline(l, e, at, seconds, by)
		a.lateness(e, a.warningDue(c, l, at))
	}
	a.image(c, l, e)
	l.warn(at)
	return nil
}

// warn notes a deadline that the version was warned of.
func (l *life) warn(at int64) {
	l.warned = string(binary.BigEndian.AppendUint64([]byte(l.warned), uint64(at)))
}

func (l *life) warnedOf(at int64) bool {
	for i := 0; i < len(l.warned); i += 8 {
		if int64(binary.BigEndian.Uint64([]byte(l.warned[i:i+8]))) == at {
			return true
		}
	}
	return false
}

// warningDue returns the log time, ms, at which a warning of a deadline was due at the
// latest: the audit keeps only the second of a version.
func (a *Auditor) warningDue(c *collection, l *life, at int64) int64 {
	return max((at-int64(c.policy.WarnBefore))*1000, l.ts*1000+999, c.since, c.warns, l.freed, a.resumed)
}

// lateness records e as late if it came lateFrom or more after its due log time, in ms.
func (a *Auditor) lateness(e *schema.Event, due int64) {
	if e.Time-due >= lateFrom {
		a.late = e.Time
	}
}

// toWarn returns the deadline of a live version without a warning of it, and the time
// from which a warning was possible, both in ms; ok is false if no warning is missing.
func (a *Auditor) toWarn(c *collection, l *life) (from, deadline int64, ok bool) {
	at, _, by := c.deadline(l)
	if l.phase != alive || by == schema.NoRule || c.policy.WarnBefore == 0 || l.warnedOf(at) {
		return 0, 0, false
	}
	from, deadline = max(a.warningDue(c, l, at), a.late), at*1000
	return from, deadline, from < deadline
}

// unwarned audits a version whose deadline is after log time now, in ms, when an event
// cancels that deadline or the log ends.
func (a *Auditor) unwarned(c *collection, id schema.DocumentID, l *life, now int64, grace func(lead int64) int64) {
	from, deadline, ok := a.toWarn(c, l)
	if ok && now < deadline && from+grace(deadline-from) <= now {
		a.foundUnwarned(c, id, l, deadline)
	}
}

// unwarnedExpired audits a version that expires with e.
func (a *Auditor) unwarnedExpired(c *collection, l *life, e *schema.Event) {
	at, _, by := c.deadline(l)
	if by == schema.NoRule {
		return
	}
	if from, deadline, ok := a.toWarn(c, l); ok {
		last := a.active.before(deadline)
		prompt := e.Time >= deadline && e.Time-deadline < onTime
		if from+closedGrace(deadline-from) <= last || prompt && deadline-from >= surelyUp {
			a.foundUnwarned(c, e.ID, l, deadline)
		}
	}
	a.lateness(e, max(at*1000, c.since, l.freed))
}

func (a *Auditor) foundUnwarned(c *collection, id schema.DocumentID, l *life, deadline int64) {
	a.found(Unwarned, l.version, c.name, id, "this version was to be warned of its deadline %s from %d s before on, and has no DocumentExpiring", clock(deadline/1000), c.policy.WarnBefore)
	l.warn(deadline / 1000) // one finding only
}

// settleWarnings audits the live documents of a collection whose warnings are due at log
// time now, in ms, when their deadlines change or the log ends. They are those that come
// due within warnBefore from now on: two ranges, one in each order.
func (a *Auditor) settleWarnings(c *collection, now int64, grace func(lead int64) int64) error {
	if !c.known || c.policy.WarnBefore == 0 || c.policy.DefaultTTL == schema.Off {
		return nil
	}
	for _, in := range []order{byDeadline, byTimestamp} {
		later := int64(0)
		if in == byTimestamp {
			if later = int64(c.policy.DefaultTTL); c.policy.DefaultTTL == schema.NoDefault {
				continue
			}
		}
		from := second(now) - later + 1
		err := a.state.due(c.incarnation, in, from, from+int64(c.policy.WarnBefore), func(id schema.DocumentID) error {
			l, err := a.state.life(c.incarnation, id)
			if err == nil {
				a.unwarned(c, id, l, now, grace)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// activity holds the time of the last event of each recent second that has one. The audit
// asks it for the last sign of life before a deadline. Only the last 128 seconds with
// events are kept.
type activity struct {
	times [128]int64 // log times, ms, rising; a ring
	next  int
}

// record notes an event at a log time in ms.
func (v *activity) record(time int64) {
	last := &v.times[(v.next+len(v.times)-1)%len(v.times)]
	if second(*last) == second(time) {
		*last = max(*last, time)
		return
	}
	v.times[v.next] = time
	v.next = (v.next + 1) % len(v.times)
}

// before returns the time of the last recorded event before a log time, in ms; 0 if it is
// too long ago.
func (v *activity) before(time int64) (last int64) {
	for _, t := range v.times {
		if t < time {
			last = max(last, t)
		}
	}
	return last
}
