package machine

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/lapsedb/lapse/expiry"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// How what is due is found without a timer for each document. The projection keeps two
// queues of each collection in the order of their deadlines (projections/due.go): documents
// with a ttl of their own, and those that inherit. The sweep has a timer for each queue and
// kind of event, set to the second of its first entry. A queue goes through these states:
//
//	disarmed ─► armed ─► due ─► walked ─► armed by the next entry, or disarmed
//
//   - It is armed when a collection is folded (arm), and moved forward when an event is folded
//     whose entry is due earlier (folded).
//   - The wheel makes it due (Expire). Due queues of a second are walked in the order of their
//     keys, so that the log does not depend on the order of timers.
//   - walk visits entries from position on, up to the limit of the turn. If there is more it
//     stays due; else its timer is set to the first entry that it left.
//
// Only folded documents are in queues, and the sweep runs ahead of the fold. So an entry may
// be of a version that an event in flight has ended, or that this sweep has expired already:
// walk asks the overlay and skips it. Conversely, an event may be folded whose entry lies
// before position, since the walk went past its place while the event was in flight: back
// makes the next walk visit it.
//
// Hence exactly one DocumentExpired for each version that comes due: an entry leaves its queue
// only when an event that ends the version is folded; until then a walk finds it, and the
// overlay says whether such an event is in flight. If the append fails, Abort drops the overlay
// and restarts the walks, so that they find the versions again that such events would have ended.
//
// NextDue may be early, as after a touch of the first document, and is never late: a timer is
// set to the first entry at that time, and entries that are folded later move it forward alone.

// sweep holds the expiry queues, and which of them are due.
type sweep struct {
	calls  []span // of Expire, whose events are pending
	wheel  *expiry.Wheel[*queue]
	queues map[schema.CollectionName]*queues

	// due are the queues that fired and are not walked to their end, by kind.
	due [kinds][]dueQueue

	mostLate int // the constant; less in tests
}

// kind is what a walk of a queue emits. Both walk the same entries of the expiry index,
// warnings ahead of expiries by warnBefore.
type kind int

const (
	expiries kind = iota
	warnings
	kinds
)

// queues are the expiry queues of a collection, by kind and order.
type queues [kinds][2]queue

type queue struct {
	projections.Queue
	kind       kind
	collection schema.CollectionName
	policy     policy // by which it is armed

	// timer is armed at the second at which the first entry is due; a walk finds the next
	// one.
	timer expiry.Timer[*queue]

	// position is the last entry walked, or the end of what was due. The next walk
	// continues there, past tombstones and most entries whose event is pending. In a
	// queue of expiries, an entry folded before the position moves it back: there are few.
	// In a queue of warnings, each write with a ttl below warnBefore folds one, and warned
	// entries stay in the queue, so late lists them instead.
	position projections.Entry
	late     []lateEntry

	// again counts the entries up to overflow, the position when late last overflowed,
	// revisited without effect since.
	again    int
	overflow projections.Entry
}

// lateEntry is a version to be warned of whose entry the walk has passed.
type lateEntry struct {
	id       schema.DocumentID
	version  schema.Version
	released bool // by a DocumentReleased: it may have been warned of
}

// mostLate is the number of late entries beyond which the whole queue is walked again. A
// long queue lists more, so that a walk visits few entries for each late one.
const mostLate = 1 << 14

// back makes the next walk visit an entry that was folded before the position. most is
// the number of late entries that a short queue lists.
func (q *queue) back(fact *projections.Fact, second int64, most int) {
	switch {
	case q.kind == expiries:
		q.position = projections.Entry{Second: second}
	case len(q.late) >= max(most, q.again/skipsPerEvent):
		if q.overflow.Before(q.position) {
			q.overflow = q.position
		}
		q.position, q.late, q.again = projections.Entry{}, nil, 0
	case fact.Type == schema.DocumentReleased:
		q.late = append(q.late, lateEntry{fact.ID, fact.Prior.Version, true})
	default:
		q.late = append(q.late, lateEntry{fact.ID, schema.Version(fact.Seq), false})
	}
}

// policy is what decides when the entries of a queue are due, at after their second less
// lead; the zero policy is never.
type policy struct {
	at, lead int64
	due      bool
}

func (q *queue) policyOf(c *schema.Collection) policy {
	at, expires := projections.DueAt(c, q.Order, 0)
	before, due := lead(c, q.kind)
	if !expires || !due {
		return policy{}
	}
	return policy{at, before, true}
}

type dueQueue struct {
	*queue
	at int64
}

// lead returns how many seconds before its deadline an entry is due in queues of a kind;
// ok is false if none are.
func lead(c *schema.Collection, k kind) (seconds int64, ok bool) {
	if k == expiries {
		return 0, true
	}
	return int64(c.WarnBefore), c.WarnBefore > 0
}

// dueAt returns the second at which an entry of q is due; ok is false if it never is.
func (q *queue) dueAt(c *schema.Collection, second int64) (at int64, ok bool) {
	before, ok := lead(c, q.kind)
	if !ok {
		return 0, false
	}
	at, ok = projections.DueAt(c, q.Order, second)
	return at - before, ok
}

// arm arms the queues of a collection by their first entries and its policy. Queues whose
// entries are due when they were before stay as they are.
func (m *Machine) arm(c *schema.Collection) error {
	all := m.sweep.queues[c.Name]
	if all == nil || all[expiries][0].Incarnation != c.Incarnation {
		m.disarm(c.Name)
		all = new(queues)
		m.sweep.queues[c.Name] = all
		for k := range all {
			for order := range all[k] {
				q := &all[k][order]
				q.Queue = projections.Queue{Incarnation: c.Incarnation, Order: projections.Order(order)}
				q.kind, q.collection, q.timer.Value = kind(k), c.Name, q
			}
		}
	}
	for k := range all {
		for order := range all[k] {
			q := &all[k][order]
			if p := q.policyOf(c); q.policy != p {
				q.policy = p
				if err := m.armQueue(c, q); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// armQueue arms a queue whose policy has changed.
func (m *Machine) armQueue(c *schema.Collection, q *queue) error {
	m.disarmQueue(q)
	q.position, q.late, q.again, q.overflow = projections.Entry{}, nil, 0, projections.Entry{}
	if !q.policy.due {
		return nil
	}
	m.skipOverdue(c, q)
	first, any, err := m.Store.Scan(q.Queue, q.position, -1, nil)
	if any && err == nil {
		at, _ := q.dueAt(c, first)
		m.sweep.wheel.Set(&q.timer, at)
	}
	return err
}

// skipOverdue moves the position of a queue of warnings past entries whose deadline has
// passed: they get no warning any more.
func (m *Machine) skipOverdue(c *schema.Collection, q *queue) {
	if q.kind != warnings {
		return
	}
	last, _ := projections.LastDue(c, q.Order, m.now())
	q.skipTo(last + 1)
}

// skipTo moves the position to the beginning of a second, if it is before.
func (q *queue) skipTo(second int64) {
	if first := (projections.Entry{Second: second}); q.position.Before(first) {
		q.position = first
	}
}

// disarm drops the queues of a collection, if any.
func (m *Machine) disarm(name schema.CollectionName) {
	all := m.sweep.queues[name]
	if all == nil {
		return
	}
	for k := range all {
		for i := range all[k] {
			m.disarmQueue(&all[k][i])
		}
	}
	delete(m.sweep.queues, name)
}

func (m *Machine) disarmQueue(q *queue) {
	m.sweep.wheel.Remove(&q.timer)
	due := &m.sweep.due[q.kind]
	*due = slices.DeleteFunc(*due, func(d dueQueue) bool { return d.queue == q })
}

// folded updates the wheel for a folded event.
func (m *Machine) folded(fact *projections.Fact) error {
	switch {
	case fact.Type == schema.CollectionDeleted:
		m.disarm(fact.Collection) // a new one of that name is armed when folded
	case fact.Type.OnCollection():
		if c, ok := m.Store.Collection(fact.Collection); ok {
			return m.arm(c)
		}
	case fact.Type.StartsTTL():
		c, ok := m.Store.Collection(fact.Collection)
		if !ok {
			return nil
		}
		in, second, waits := projections.QueueOf(c, deadlineMeta(fact))
		if !waits {
			return nil
		}
		all := m.sweep.queues[c.Name]
		if all == nil || all[expiries][in.Order].Queue != in {
			return nil // c is newer than the event, and armed when its own is folded
		}
		for k := range all {
			q := &all[k][in.Order]
			at, due := q.dueAt(c, second)
			if !due {
				continue
			}
			// While the event was pending the sweep may have walked past its place.
			if !q.position.Before(projections.Entry{Second: second, ID: fact.ID}) {
				q.back(fact, second, m.sweep.mostLate)
			}
			m.rearm(q, at)
		}
	}
	return nil
}

// deadlineMeta returns those fields of the Meta after a fact that decide the deadline.
func deadlineMeta(fact *projections.Fact) projections.Meta {
	if fact.Type == schema.DocumentReleased {
		return projections.Meta{TS: fact.Prior.TS, TTL: fact.TTL}
	}
	return projections.Meta{TS: fact.Time / 1000, TTL: fact.TTL, Held: fact.Prior.Held}
}

// NextDue returns the earliest second at which a folded document may be due, or its
// warning. It may be early, never late.
func (m *Machine) NextDue() (second int64, ok bool) {
	second, ok = m.sweep.wheel.Next()
	for _, due := range m.sweep.due {
		for _, d := range due {
			if !ok || d.at < second {
				second, ok = d.at, true
			}
		}
	}
	return second, ok
}

// SoonestDue returns the earliest second at which the pending events from index first on may
// make something due, which NextDue knows once they are folded; math.MaxInt64 if they make
// nothing due.
func (m *Machine) SoonestDue(first int) (second int64) {
	second = math.MaxInt64
	for i := first; i < len(m.pending); i++ {
		fact := &m.pending[i]
		switch {
		case fact.Type.OnCollection():
			return math.MinInt64 // a change of policy may make anything due
		case fact.Type.StartsTTL():
			c := m.Collection(fact.Collection)
			if d := deadlineMeta(fact).Deadline(c); d.Rule != schema.NoRule {
				second = min(second, d.At-int64(c.WarnBefore))
			}
		}
	}
	return second
}

// Rearm makes NextDue exact, which is early where the document that armed a queue has changed
// since. now is the time in ms; nothing may be pending.
func (m *Machine) Rearm(now int64) error {
	m.stamp(now)
	for name, all := range m.sweep.queues {
		c, there := m.Store.Collection(name)
		for k := range all {
			for order := range all[k] {
				q := &all[k][order]
				if !there || !q.policy.due || len(q.late) > 0 {
					continue
				}
				m.skipOverdue(c, q)
				first, any, err := m.first(c, q)
				if err != nil {
					return err
				}
				m.sweep.wheel.Remove(&q.timer)
				if any {
					at, _ := q.dueAt(c, first)
					m.sweep.wheel.Set(&q.timer, at)
				}
			}
		}
	}
	return nil
}

// first returns the second of the first entry after the position that has not been warned of
// its deadline, if the queue warns.
func (m *Machine) first(c *schema.Collection, q *queue) (second int64, any bool, err error) {
	_, _, err = m.Store.Scan(q.Queue, q.position, math.MaxInt64, func(entry projections.Entry) bool {
		any = q.kind == expiries || !slices.Contains(entry.Warned, entry.Meta.Deadline(c).At)
		second = entry.Second
		return !any
	})
	return second, any, err
}

// expiryWork is the work up to which an expiry or warning counts as one of a limit; one
// with more counts as several.
const expiryWork = 32 << 10

// Expire decides up to limit expiries of folded documents that are due at now, in ms,
// queue by queue and in each by deadline; then warnings likewise. Large ones count as
// several, but one is always decided. more reports whether others are due.
func (m *Machine) Expire(now int64, limit int) (more bool, err error) {
	m.stamp(now)
	s, seq := &m.sweep, m.seq
	defer func() {
		if m.seq > seq {
			s.calls = append(s.calls, span{seq, m.seq})
		}
	}()
	var before [kinds]int
	for k := range s.due {
		before[k] = len(s.due[k])
	}
	s.wheel.Advance(m.now(), func(t *expiry.Timer[*queue], at int64) {
		k := t.Value.kind
		s.due[k] = append(s.due[k], dueQueue{t.Value, at})
	})
	for k := range s.due {
		// Queues of one second are walked in the order of their keys, so that the
		// log does not depend on the order in which they were armed.
		slices.SortFunc(s.due[k][before[k]:], func(a, b dueQueue) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.Order, b.Order))
		})
	}
	for k := range s.due {
		n, more, err := m.walkDue(kind(k), limit)
		if more || err != nil {
			return more, err
		}
		limit -= n
	}
	return false, nil
}

// span is the events after one sequence, up to another.
type span struct{ after, last uint64 }

// Sweeping returns the number of pending events of Expire.
func (m *Machine) Sweeping() (events int) {
	folded := m.Folded()
	m.sweep.calls = slices.DeleteFunc(m.sweep.calls, func(s span) bool { return s.last <= folded })
	for _, s := range m.sweep.calls {
		events += int(s.last - max(s.after, folded))
	}
	return events
}

// walkDue walks the due queues of a kind.
func (m *Machine) walkDue(k kind, limit int) (decided int, more bool, err error) {
	s := &m.sweep
	done := 0
	defer func() { s.due[k] = slices.Delete(s.due[k], 0, done) }()
	for ; done < len(s.due[k]); done++ {
		q := s.due[k][done].queue
		c := m.Collection(q.collection)
		if c == nil || c.Incarnation != q.Incarnation {
			continue // deleted; if that is pending, folding it disarms the queue
		}
		n, next, err := m.walk(c, q, limit-decided)
		if err != nil {
			return 0, false, err
		}
		if decided += n; next == dueNow {
			return decided, true, nil
		}
		m.rearm(q, next)
	}
	return decided, false, nil
}

// expireAll is Expire for one collection, at the current log time. Its timers stay: they
// fire at what it walked or earlier.
func (m *Machine) expireAll(c *schema.Collection, limit int) (more bool, err error) {
	all := m.sweep.queues[c.Name]
	for k := range all {
		for i := range all[k] {
			q := &all[k][i]
			n, next, err := m.walk(c, q, limit)
			if err != nil {
				return false, err
			}
			if limit -= n; next == dueNow {
				return true, nil
			}
		}
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

// skipsPerEvent is the number of entries without an event, such as those that were warned
// of before, that count as one event towards a limit.
const skipsPerEvent = 16

// walk decides expiries or warnings of one queue from its position on. n is their count,
// which the last one may take beyond limit. next is the second at which the queue is due
// again, dueNow if limit was reached first, or never.
func (m *Machine) walk(c *schema.Collection, q *queue, limit int) (n int, next int64, err error) {
	last, ok := projections.LastDue(c, q.Order, m.now())
	before, due := lead(c, q.kind)
	if !ok || !due {
		return 0, never, nil
	}
	decide := m.expireEntry
	if q.kind == warnings {
		decide = m.warnEntry
	}
	documents := m.Store.Lookup(c)
	defer func() { err = errors.Join(err, documents.Close()) }()
	skipped := 0
	count := func(decided bool, work int) {
		if decided {
			n += 1 + (m.work-work)/expiryWork
		} else if skipped++; skipped%skipsPerEvent == 0 {
			n++
		}
	}
	for ; len(q.late) > 0; q.late = q.late[1:] {
		if n >= limit {
			return n, dueNow, nil
		}
		work := m.work
		decided, err := m.warnLate(c, q.late[0], documents)
		if err != nil {
			return 0, 0, err
		}
		count(decided, work)
	}
	q.late = nil
	m.skipOverdue(c, q)
	second, more, scanErr := m.Store.Scan(q.Queue, q.position, last+before, func(entry projections.Entry) bool {
		if n >= limit {
			next = dueNow
			return false
		}
		q.position = entry
		work := m.work
		var decided bool
		decided, err = decide(c, entry, documents)
		count(decided, work)
		if !decided && !q.overflow.Before(entry) {
			q.again++
		}
		return err == nil
	})
	if err == nil {
		err = scanErr
	}
	if err == nil && next != dueNow {
		q.skipTo(last + before + 1)
	}
	if more {
		next, _ = q.dueAt(c, second)
	}
	return n, next, err
}

// expireEntry expires the document of a due entry, unless a pending event has ended that
// version.
func (m *Machine) expireEntry(c *schema.Collection, entry projections.Entry, documents projections.Lookup) (bool, error) {
	if d, pending := m.overlay.documents[DocumentKey{Incarnation: c.Incarnation, ID: entry.ID}]; pending && !d.warned {
		return false, nil
	}
	body, ok, err := m.entryBody(c, entry, documents)
	if !ok || err != nil {
		return false, err
	}
	m.expire(c, entry.ID, projections.Record{Meta: entry.Meta, Body: body})
	return true, nil
}

// warnEntry warns of the deadline of an entry, unless that was done or a pending event has
// ended that version.
func (m *Machine) warnEntry(c *schema.Collection, entry projections.Entry, documents projections.Lookup) (bool, error) {
	key := DocumentKey{Incarnation: c.Incarnation, ID: entry.ID}
	deadline := entry.Meta.Deadline(c)
	if _, pending := m.overlay.documents[key]; pending || slices.Contains(entry.Warned, deadline.At) {
		return false, nil
	}
	body, ok, err := m.entryBody(c, entry, documents)
	if !ok || err != nil {
		return false, err
	}
	e := &schema.Event{Type: schema.DocumentExpiring, Collection: c.Name, ID: entry.ID,
		Previous: entry.Meta.Version, Deadline: deadline, Body: m.image(c, body)}
	m.emitFact(projections.Fact{Event: e, Known: true, Incarnation: c.Incarnation, Prior: entry.Meta, Warned: entry.Warned})
	m.overlay.setDocument(key, overlaid{Record: projections.Record{Meta: entry.Meta}, seq: m.seq, warned: true})
	return true, nil
}

// warnLate is warnEntry for a late entry, unless another event has ended that version or
// moved its deadline since.
func (m *Machine) warnLate(c *schema.Collection, late lateEntry, documents projections.Lookup) (bool, error) {
	meta, ok, err := m.Store.Meta(c, late.id)
	if err != nil || !ok || meta.Version != late.version {
		return false, err
	}
	deadline := meta.Deadline(c)
	if deadline.Rule == schema.NoRule || deadline.Passed(m.now()) || deadline.At-int64(c.WarnBefore) > m.now() {
		return false, nil
	}
	entry := projections.Entry{ID: late.id, Meta: meta}
	if late.released {
		if entry.Warned, err = m.Store.Warned(c, late.id, meta); err != nil {
			return false, err
		}
	}
	return m.warnEntry(c, entry, documents)
}

// entryBody returns the content of the document of an entry, nil if events have none; ok is
// false if there is no such document.
func (m *Machine) entryBody(c *schema.Collection, entry projections.Entry, documents projections.Lookup) (body []byte, ok bool, err error) {
	if !c.PreviousImages {
		return nil, true, nil
	}
	r, ok, err := documents.Document(entry.ID)
	m.work += len(r.Body)
	return r.Body, ok, err
}

// expire emits the DocumentExpired of a version that is due.
func (m *Machine) expire(c *schema.Collection, id schema.DocumentID, r projections.Record) {
	e := &schema.Event{Type: schema.DocumentExpired, Collection: c.Name, ID: id,
		Previous: r.Version, Deadline: r.Deadline(c), Body: m.image(c, r.Body)}
	m.emitFact(projections.Fact{Event: e, Known: true, Incarnation: c.Incarnation, Prior: r.Meta})
	m.overlay.setDocument(DocumentKey{Incarnation: c.Incarnation, ID: id}, overlaid{seq: m.seq})
}
