package machine

import (
	"cmp"
	"errors"
	"slices"

	"github.com/lapsedb/lapse/expiry"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// sweep holds the expiry queues, and which of them are due. They hold folded documents
// only: a queue is armed when an event that fills it is folded.
type sweep struct {
	wheel  *expiry.Wheel[*queue]
	queues map[schema.CollectionName]*queues

	// due are the queues that fired and are not walked to their end.
	due []dueQueue
}

// queues are the expiry queues of a collection, by their order.
type queues [2]queue

type queue struct {
	projections.Queue
	collection schema.CollectionName

	// timer is armed at the second of the first entry; a walk finds the next one.
	timer expiry.Timer[*queue]

	// position is the last entry walked. The next walk goes on from there, past
	// tombstones and most entries whose DocumentExpired is pending. An entry folded
	// before the position moves it back.
	position projections.Entry
}

type dueQueue struct {
	*queue
	at int64
}

// arm arms both queues of a collection by their first entries and its policy.
func (m *Machine) arm(c *schema.Collection) error {
	m.disarm(c.Name)
	both := new(queues)
	m.sweep.queues[c.Name] = both
	for _, order := range []projections.Order{projections.ByDeadline, projections.ByTimestamp} {
		q := &both[order]
		q.Queue = projections.Queue{Incarnation: c.Incarnation, Order: order}
		q.collection = c.Name
		q.timer.Value = q
		first, any, err := m.Store.Scan(q.Queue, projections.Entry{}, -1, nil)
		if err != nil {
			return err
		}
		if at, ok := projections.DueAt(c, order, first); any && ok {
			m.sweep.wheel.Set(&q.timer, at)
		}
	}
	return nil
}

// disarm drops the queues of a collection, if any.
func (m *Machine) disarm(name schema.CollectionName) {
	both := m.sweep.queues[name]
	if both == nil {
		return
	}
	for i := range both {
		m.sweep.wheel.Remove(&both[i].timer)
	}
	m.sweep.due = slices.DeleteFunc(m.sweep.due, func(d dueQueue) bool { return d.collection == name })
	delete(m.sweep.queues, name)
}

// folded updates the wheel for a folded event.
func (m *Machine) folded(fact *projections.Fact) error {
	switch fact.Type {
	case schema.CollectionCreated, schema.CollectionReplaced:
		if c, ok := m.Store.Collection(fact.Collection); ok {
			return m.arm(c)
		}
	case schema.CollectionDeleted:
		m.disarm(fact.Collection) // a new one of that name is armed when folded
	case schema.DocumentCreated, schema.DocumentReplaced, schema.DocumentTouched, schema.DocumentReleased:
		c, ok := m.Store.Collection(fact.Collection)
		if !ok {
			return nil
		}
		in, second, waits := projections.QueueOf(c, waitingMeta(fact))
		if !waits {
			return nil
		}
		at, expires := projections.DueAt(c, in.Order, second)
		if !expires {
			return nil
		}
		both := m.sweep.queues[c.Name]
		if both == nil || both[in.Order].Queue != in {
			return nil // c is newer than the event, and armed when its own is folded
		}
		q := &both[in.Order]
		// While the event was pending the sweep may have walked past its place.
		if !q.position.Before(projections.Entry{Second: second, ID: fact.ID}) {
			q.position = projections.Entry{Second: second}
		}
		m.rearm(q, at)
	}
	return nil
}

// waitingMeta returns what of the Meta after a fact says when the document is due.
func waitingMeta(fact *projections.Fact) projections.Meta {
	if fact.Type == schema.DocumentReleased {
		return projections.Meta{TS: fact.Prior.TS, TTL: fact.TTL}
	}
	return projections.Meta{TS: fact.Time / 1000, TTL: fact.TTL, Held: fact.Prior.Held}
}

// NextDue returns the earliest second at which a folded document may be due. It may be
// early, never late.
func (m *Machine) NextDue() (second int64, ok bool) {
	second, ok = m.sweep.wheel.Next()
	for _, d := range m.sweep.due {
		if !ok || d.at < second {
			second, ok = d.at, true
		}
	}
	return second, ok
}

// expiryBytes is the size up to which an expiry counts as one of a limit; a larger one
// counts as several.
const expiryBytes = 8 << 10

// Expire decides up to limit expiries of folded documents that are due at now, in ms,
// queue by queue and in each by deadline. Large ones count as several, but one is always
// decided. more reports whether others are due.
func (m *Machine) Expire(now int64, limit int) (more bool, err error) {
	m.stamp(now)
	s := &m.sweep
	before := len(s.due)
	s.wheel.Advance(m.now(), func(t *expiry.Timer[*queue], at int64) {
		s.due = append(s.due, dueQueue{t.Value, at})
	})
	// Queues of one second are walked in the order of their keys, so that the
	// log does not depend on the order in which they were armed.
	slices.SortFunc(s.due[before:], func(a, b dueQueue) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.Order, b.Order))
	})
	done := 0
	defer func() { s.due = slices.Delete(s.due, 0, done) }()
	for ; done < len(s.due); done++ {
		q := s.due[done].queue
		c := m.Collection(q.collection)
		if c == nil || c.Incarnation != q.Incarnation {
			continue // deleted; if that is pending, folding it disarms the queue
		}
		n, next, err := m.walk(c, q, limit)
		if err != nil {
			return false, err
		}
		if limit -= n; next == dueNow {
			return true, nil
		}
		m.rearm(q, next)
	}
	return false, nil
}

// expireAll is Expire for one collection, at the current log time.
func (m *Machine) expireAll(c *schema.Collection, limit int) (more bool, err error) {
	both := m.sweep.queues[c.Name]
	for i := range both {
		q := &both[i]
		n, next, err := m.walk(c, q, limit)
		if err != nil {
			return false, err
		}
		if limit -= n; next == dueNow {
			m.sweep.wheel.Set(&q.timer, m.now())
			return true, nil
		}
		m.rearm(q, next)
	}
	return false, nil
}

// Values of walk's next other than a second.
const (
	dueNow = -1
	never  = 0
)

func (m *Machine) rearm(q *queue, next int64) {
	if armed, ok := q.timer.At(); next != never && (!ok || next < armed) {
		m.sweep.wheel.Set(&q.timer, next)
	}
}

// walk decides expiries of one queue from its position on. n is their count, which the
// last one may take beyond limit. next is the second at which the queue is due again,
// dueNow if limit was reached first, or never.
func (m *Machine) walk(c *schema.Collection, q *queue, limit int) (n int, next int64, err error) {
	last, ok := projections.LastDue(c, q.Order, m.now())
	if !ok {
		return 0, never, nil
	}
	documents := m.Store.Lookup(c)
	defer func() { err = errors.Join(err, documents.Close()) }()
	second, more, scanErr := m.Store.Scan(q.Queue, q.position, last, func(entry projections.Entry) bool {
		if n >= limit {
			next = dueNow
			return false
		}
		q.position = entry
		before := m.bytes
		var expired bool
		expired, err = m.expireEntry(c, entry, documents)
		if expired {
			n += 1 + (m.bytes-before)/expiryBytes
		}
		return err == nil
	})
	if err == nil {
		err = scanErr
	}
	if more {
		next, _ = projections.DueAt(c, q.Order, second)
	}
	return n, next, err
}

// expireEntry expires the document of a due entry, unless a pending event has ended that
// version.
func (m *Machine) expireEntry(c *schema.Collection, entry projections.Entry, documents projections.Lookup) (bool, error) {
	if _, pending := m.Overlay.documents[DocumentKey{Incarnation: c.Incarnation, ID: entry.ID}]; pending {
		return false, nil
	}
	var body []byte
	if c.PreviousImages {
		r, ok, err := documents.Document(entry.ID)
		if err != nil || !ok {
			return false, err
		}
		body = r.Body
	}
	m.expire(c, entry.ID, projections.Record{Meta: entry.Meta, Body: body})
	return true, nil
}

// expire emits the DocumentExpired of a version that is due.
func (m *Machine) expire(c *schema.Collection, id schema.DocumentID, r projections.Record) {
	e := &schema.Event{Type: schema.DocumentExpired, Collection: c.Name, ID: id,
		Previous: r.Version, Deadline: r.Deadline(c), Body: m.image(c, r.Body)}
	m.emitFact(projections.Fact{Event: e, Known: true, Incarnation: c.Incarnation, Prior: r.Meta})
	m.Overlay.setDocument(DocumentKey{Incarnation: c.Incarnation, ID: id}, overlaid{seq: m.seq})
}
