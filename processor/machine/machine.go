// Package machine is the state machine at the core of lapse: it decides mutations and
// batches, expires documents, and folds the resulting events. It has no goroutine, clock
// or I/O of its own.
//
// It imports schema, expiry (the timer wheel) and projections. Start reading at Machine;
// then decide.go (a mutation), batch.go, sweep.go (where a deadline fires) and overlay.go
// (pending events). simulation.go drives a machine with a simulated clock.
package machine

import (
	"fmt"

	"github.com/lapsedb/lapse/expiry"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Machine decides mutations, expires documents, and folds the resulting events once the
// log has them. It has no goroutine, clock or NATS; serve, simulate and tests drive it.
//
// Decide and Expire add events to pending; Take hands them out to be appended; Commit
// folds them when the log has acknowledged them, and Abort forgets them when it has
// not. Between Take and Commit the machine goes on deciding, against the projection and
// the overlay of pending events.
//
// It is not safe for concurrent use. An error from it is one of the projection; the
// state of the machine is undefined then.
type Machine struct {
	Store Projection

	// Largest is the largest event body, in bytes, that a message of the NATS server can
	// carry; 0 for no limit. Mutations with a larger one are rejected.
	Largest int

	// History reads the log for restores, which fail without it.
	History History

	seq  uint64 // of the last event decided
	time int64  // log time up to which it has decided, ms

	// pending holds the events decided and not folded, in log order; the first taken of
	// them were handed out.
	pending []projections.Fact
	taken   int
	bytes   int  // of the bodies of pending
	folds   int  // work of folding pending, see Work
	work    int  // see Work
	reads   int  // bytes of documents read so far
	counts  bool // index entries, for Work

	overlay overlay
	sweep   sweep
}

// Projection is the folded state that a machine decides against.
type Projection interface {
	Cursor() projections.Cursor
	Collections() []*schema.Collection
	Collection(schema.CollectionName) (*schema.Collection, bool)
	Meta(*schema.Collection, schema.DocumentID) (projections.Meta, bool, error)
	Document(*schema.Collection, schema.DocumentID) (projections.Record, bool, error)
	Lookup(*schema.Collection) projections.Lookup
	Reason(*schema.Collection, schema.DocumentID) (string, error)
	Held(*schema.Collection) int64
	IndexEntries(*schema.Collection, []byte) int
	Warned(*schema.Collection, schema.DocumentID, projections.Meta) ([]int64, error)
	Repeated(msgID string, now int64) (r projections.Repeat, ok bool, err error)
	Scan(q projections.Queue, after projections.Entry, last int64, visit func(projections.Entry) bool) (next int64, more bool, err error)
	Fold([]projections.Fact) error
}

// NewMachine returns a machine over a store whose cursor is at the end of the log.
func NewMachine(store Projection) (*Machine, error) {
	m := &Machine{Store: store}
	return m, m.restart()
}

// restart forgets everything but the store, and arms the queues of all collections:
// O(collections), one look into the expiry index for each queue whose policy makes anything
// due.
func (m *Machine) restart() error {
	cursor := m.Store.Cursor()
	m.seq, m.time = cursor.Seq, cursor.Time
	m.pending, m.taken, m.bytes, m.folds = nil, 0, 0, 0
	m.overlay = newOverlay()
	m.sweep = sweep{
		wheel:  expiry.New[*queue](m.time / 1000),
		queues: make(map[schema.CollectionName]*queues),

		mostLate: mostLate,
	}
	for _, c := range m.Store.Collections() {
		if err := m.arm(c); err != nil {
			return err
		}
	}
	return nil
}

// Seq returns the sequence of the last event decided.
func (m *Machine) Seq() uint64 { return m.seq }

// Time returns the log time, in ms, up to which it has decided. No later event is
// earlier.
func (m *Machine) Time() int64 { return m.time }

// EndTime returns the log time, in ms, of the last event decided.
func (m *Machine) EndTime() int64 {
	if n := len(m.pending); n > 0 {
		return m.pending[n-1].Time
	}
	return m.Store.Cursor().Time
}

// Folded returns the sequence of the last event folded.
func (m *Machine) Folded() uint64 { return m.Store.Cursor().Seq }

// stamp advances log time to now, in ms. It never goes back.
func (m *Machine) stamp(now int64) { m.time = max(m.time, now) }

// now returns log time in whole seconds.
func (m *Machine) now() int64 { return m.time / 1000 }

// emit adds an event to pending.
func (m *Machine) emit(e *schema.Event) {
	m.emitFact(projections.Fact{Event: e, Known: true})
}

// emitFact gives an event its sequence and time, and adds it to pending. Sequences are
// known ahead of the log since nobody else appends (eventlog/append.go).
func (m *Machine) emitFact(fact projections.Fact) {
	m.seq++
	fact.Seq, fact.Time = m.seq, m.time
	fact.Work = m.foldWork(&fact)
	m.pending = append(m.pending, fact)
	m.bytes += len(fact.Body)
	m.folds += fact.Work
	m.work += fact.Work
	if fact.MsgID != "" && fact.Type != schema.MutationRejected {
		m.overlay.setMessage(fact.Event)
	}
}

// Note emits an internal event.
func (m *Machine) Note(now int64, t schema.EventType, body []byte) Outcome {
	m.stamp(now)
	m.emit(&schema.Event{Type: t, Collection: schema.InternalCollection, Body: body})
	return Outcome{Code: 204, Seq: m.seq}
}

// Take returns the events decided since the last Take, in log order. They
// belong to the machine and must not be changed.
func (m *Machine) Take() []projections.Fact {
	facts := m.pending[m.taken:]
	m.taken = len(m.pending)
	return facts
}

// Pending returns the number of events decided and not folded.
func (m *Machine) Pending() int { return len(m.pending) }

// PendingFacts returns those events, in log order. They belong to the machine and
// must not be changed.
func (m *Machine) PendingFacts() []projections.Fact { return m.pending }

// Taken returns the pending events that were handed out by Take.
func (m *Machine) Taken() []projections.Fact { return m.pending[:m.taken] }

// PendingBytes returns the size of the bodies of pending events.
func (m *Machine) PendingBytes() int { return m.bytes }

// Commit folds the pending events up to sequence seq, which the log has acknowledged. They
// have to be taken. The timers of the sweep follow the fold, and the overlay loses what the
// projection now has.
func (m *Machine) Commit(seq uint64) error {
	n := 0
	for n < len(m.pending) && m.pending[n].Seq <= seq {
		n++
	}
	if n > m.taken {
		return fmt.Errorf("machine: commit of %d events, %d were taken", n, m.taken)
	}
	facts := m.pending[:n]
	if err := m.Store.Fold(facts); err != nil {
		return err
	}
	for i := range facts {
		if err := m.folded(&facts[i]); err != nil {
			return err
		}
		m.bytes -= len(facts[i].Body)
		m.folds -= facts[i].Work
	}
	all := n == len(m.pending)
	m.overlay.folded(facts, all)
	clear(facts)
	m.taken -= n
	if all {
		m.pending = m.pending[:0]
	} else {
		m.pending = m.pending[n:]
	}
	return nil
}

// Abort forgets the pending events: they are not in the log. The term folds what the log
// has instead.
func (m *Machine) Abort() error { return m.restart() }

// adopt folds events of the log that this machine did not decide. Nothing may be
// pending.
func (m *Machine) adopt(facts []projections.Fact) error {
	if len(m.pending) > 0 {
		return fmt.Errorf("machine: adopt with %d events pending", len(m.pending))
	}
	if err := m.Store.Fold(facts); err != nil {
		return err
	}
	return m.restart()
}

// Collection returns a collection, pending events included; nil if there is none.
func (m *Machine) Collection(name schema.CollectionName) *schema.Collection {
	if c, ok := m.overlay.collections[name]; ok {
		return c.Collection
	}
	c, _ := m.Store.Collection(name)
	return c
}

// meta returns a document, pending events included, whether its deadline has passed or
// not; Version is 0 if there is none.
func (m *Machine) meta(c *schema.Collection, id schema.DocumentID) (projections.Meta, error) {
	if d, ok := m.overlay.documents[DocumentKey{Incarnation: c.Incarnation, ID: id}]; ok && !d.warned {
		return d.Meta, nil
	}
	meta, _, err := m.Store.Meta(c, id)
	return meta, err
}

// document returns the same document as meta, with its content.
func (m *Machine) document(c *schema.Collection, id schema.DocumentID) (projections.Record, error) {
	if d, ok := m.overlay.documents[DocumentKey{Incarnation: c.Incarnation, ID: id}]; ok && !d.warned {
		if d.Version != 0 && d.Body == nil { // the event kept folded content
			r, _, err := m.Store.Document(c, id)
			if err != nil {
				return projections.Record{}, err
			}
			d.Body = r.Body
		}
		m.read(len(d.Body))
		return d.Record, nil
	}
	r, _, err := m.Store.Document(c, id)
	m.read(len(r.Body))
	return r, err
}
