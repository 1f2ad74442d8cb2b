package audit

import "github.com/lapsedb/lapse/schema"

// grace is the time before the log's end, in ms of log time, in which a version may come
// due and not yet have a DocumentExpired. A writer may be at work on it when the log is
// read.
const grace = 60_000

// countdown implements the contract's table: it returns the TTL in seconds and the rule
// of its expiry; NoRule if the document does not expire.
//
//	                Off     NoDefault   default n
//	ttl absent      never   never       n, by collection
//	ttl -1          never   never       never
//	ttl m           never   m, by document, in both
func countdown(collection schema.DefaultTTL, document schema.TTL) (seconds int64, by schema.Rule) {
	if collection == schema.Off {
		return 0, schema.NoRule
	}
	if document > 0 {
		return int64(document), schema.RuleDocument
	}
	if document == schema.Inherit && collection > 0 {
		return int64(collection), schema.RuleCollection
	}
	return 0, schema.NoRule
}

// second returns a log time in ms, rounded down to seconds.
func second(ms int64) int64 {
	if ms < 0 && ms%1000 != 0 {
		return ms/1000 - 1
	}
	return ms / 1000
}

// deadline returns the second of expiry under the policy in force. For a held document
// there is none; at is then its _ts and means nothing.
func (c *collection) deadline(l *life) (at, seconds int64, by schema.Rule) {
	if !c.known {
		return 0, 0, schema.NoRule
	}
	if l.held {
		return l.ts, 0, schema.NoRule
	}
	seconds, by = countdown(c.policy.DefaultTTL, l.ttl)
	return l.ts + seconds, seconds, by
}

// overdue reports whether a live version should have expired by a log time.
func (c *collection) overdue(l *life, ms int64) bool {
	at, _, by := c.deadline(l)
	return l.phase == alive && by != schema.NoRule && at <= second(ms)
}

// lose records a version that came due and did not expire. before names the event that
// could not have come; it is empty at the log's end. The version becomes lost, and its
// late expiry is then no further finding.
func (a *Auditor) lose(c *collection, id schema.DocumentID, l *life, before string, seq uint64) {
	at, seconds, by := c.deadline(l)
	a.report.Lost++
	c.documents--
	if before == "" {
		a.found(Missing, l.version, c.name, id, "this version came due at %s (%d s by %s) and has no DocumentExpired", clock(at), seconds, by)
	} else {
		a.found(Missing, l.version, c.name, id, "this version came due at %s (%d s by %s) and has no DocumentExpired before %s at %d", clock(at), seconds, by, before, seq)
	}
	l.phase, l.ended = lost, seq
}

// settle audits that all versions that are due at an event of the collection expired
// before it.
func (a *Auditor) settle(c *collection, e *schema.Event) error {
	return a.walk(c, second(e.Time), func(id schema.DocumentID, l *life) {
		a.lose(c, id, l, e.Type.String(), e.Seq)
	})
}

// finish audits a collection at the log's end.
func (a *Auditor) finish(c *collection) error {
	end := a.report.LastTime
	if err := a.settleWarnings(c, end, openGrace); err != nil {
		return err
	}
	return a.walk(c, second(end), func(id schema.DocumentID, l *life) {
		at, _, _ := c.deadline(l)
		// A version that a policy change made overdue came due at the change. And nothing
		// expires while no writer runs.
		if came := max(at*1000, c.since, l.freed, a.resumed); end-came < grace {
			a.report.Pending++
			a.report.Documents--
			return
		}
		a.lose(c, id, l, "", 0)
		a.report.Documents--
	})
}

// walk visits the live documents of a collection that are due at a second. visit may
// change them. It reads the order from where the last walk ended. What enters before that
// lowers the mark (enter), so a walk costs as much as it finds, not as much as there is.
func (a *Auditor) walk(c *collection, now int64, visit func(schema.DocumentID, *life)) error {
	if !c.known || c.policy.DefaultTTL == schema.Off {
		return nil
	}
	through := [2]int64{now, now - int64(c.policy.DefaultTTL)}
	for i, in := range []order{byDeadline, byTimestamp} {
		if through[i] < c.walked[i] || in == byTimestamp && c.policy.DefaultTTL == schema.NoDefault {
			continue
		}
		err := a.state.due(c.incarnation, in, c.walked[i], through[i], func(id schema.DocumentID) error {
			l, err := a.state.life(c.incarnation, id)
			if err == nil && c.overdue(l, now*1000) {
				visit(id, l)
			}
			return err
		})
		if err != nil {
			return err
		}
		c.walked[i] = through[i]
	}
	return nil
}

// enter lowers walked, so that a scan includes the document's entry in its order.
func (c *collection) enter(l *life) {
	if in, at := l.place(); in != 0 {
		c.walked[in-byDeadline] = min(c.walked[in-byDeadline], at)
	}
}
