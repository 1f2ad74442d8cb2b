package audit

import "github.com/lapsedb/lapse/schema"

// documentExpired audits DocumentExpired. Its cases, from good to bad: the live version;
// one from before the log; a version that had ended already; one that never was.
func (a *Auditor) documentExpired(e *schema.Event) error {
	c, l, err := a.life(e)
	if err != nil {
		return err
	}
	previous := uint64(e.Previous)
	switch {
	case l.phase == lost && l.version == previous:
		// It is too late: its absence is a finding already.
		l.phase, l.ended = expired, e.Seq
	case l.phase == alive && l.version == previous:
		if l.held {
			a.against(ExpiredHeld, e, "version %d is held", l.version)
			l.held = false
			c.held--
		}
		a.unwarnedExpired(c, l, e)
		a.countdown(c, l, e)
		a.image(c, l, e)
		a.report.Expired++
		c.documents--
		l.phase, l.ended = expired, e.Seq
	case c.precedes(l, previous):
		a.unseenExpired(c, l, e)
		a.image(c, l, e)
		a.report.Expired++
		*l = life{phase: expired, version: previous, ended: e.Seq}
	case l.phase == unseen:
		a.against(Life, e, "there was no such document")
	case l.phase == expired && l.version == previous:
		a.against(Double, e, "version %d has expired before, at %d", previous, l.ended)
	case l.phase == deleted && l.version == previous:
		a.against(Stale, e, "version %d was deleted before, at %d", previous, l.ended)
	case previous > l.version:
		a.against(Previous, e, "it says that it ends version %d, the last one was %d", previous, l.version)
	case l.phase == alive:
		a.against(Stale, e, "version %d had ended before, alive is version %d", previous, l.version)
	default:
		a.against(Stale, e, "version %d had ended before, the last one was %d", previous, l.version)
	}
	return nil
}

// countdown audits the TTL and rule of an expiry of a known version. For an unknown policy
// there is only what the event says of itself.
func (a *Auditor) countdown(c *collection, l *life, e *schema.Event) {
	stated, policy := e.Deadline, c.policy.DefaultTTL
	if !c.known {
		// The policy is unknown: use the one that the event implies.
		if policy = schema.NoDefault; stated.Rule == schema.RuleCollection {
			policy = schema.DefaultTTL(stated.TTL)
		}
	}
	seconds, by := countdown(policy, l.ttl)
	at, now := l.ts+seconds, second(e.Time)
	switch {
	case by == schema.NoRule && policy == schema.Off:
		a.against(Never, e, "version %d expired while the collection's TTL was off", l.version)
		return
	case by == schema.NoRule:
		a.against(Never, e, "version %d expired, which has ttl %s in a collection with defaultTtl %d", l.version, ttlText(l.ttl), policy)
		return
	case at > now:
		a.against(Early, e, "version %d expired at %s, and was to live until %s (%d s by %s)", l.version, clock(now), clock(at), seconds, by)
	}
	a.statedDeadline(l, e, at, seconds, by)
}

// statedDeadline audits the deadline that an event names.
func (a *Auditor) statedDeadline(l *life, e *schema.Event, at, seconds int64, by schema.Rule) {
	switch stated := e.Deadline; {
	case stated.Rule != by:
		a.against(ByRule, e, "it says by %s, it is %d s by %s", stated.Rule, seconds, by)
	case int64(stated.TTL) != seconds:
		a.against(TTL, e, "it says after %d s, it is after %d s by %s", stated.TTL, seconds, by)
	case stated.At != at:
		a.against(Deadline, e, "it says deadline %d, it is %d: version %d has _ts %d", stated.At, at, l.version, l.ts)
	}
}

// unseenExpired audits the expiry of a version from before the log. Its ttl is unknown, so
// only contradictions are findings: with itself and with the policy.
func (a *Auditor) unseenExpired(c *collection, l *life, e *schema.Event) {
	stated := e.Deadline
	if stated.At > second(e.Time) {
		a.against(Early, e, "it expired at %s, and its deadline is %s", clock(second(e.Time)), clock(stated.At))
	}
	switch policy := c.policy.DefaultTTL; {
	case !c.known:
	case policy == schema.Off:
		a.against(Never, e, "it expired while the collection's TTL was off")
	case stated.Rule == schema.RuleCollection && policy == schema.NoDefault:
		a.against(ByRule, e, "it says by collection, which has defaultTtl -1")
	case stated.Rule == schema.RuleCollection && int32(policy) != stated.TTL:
		a.against(TTL, e, "it says after %d s, it is after %d s by collection", stated.TTL, policy)
	}
}

// ttlText returns a ttl of a document that does not expire by itself.
func ttlText(ttl schema.TTL) string {
	if ttl == schema.Never {
		return "-1"
	}
	return "null"
}
