package projections

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/lapsedb/lapse/schema"
)

// Memory is the projection of a simulation, in plain maps: it has the reads that the
// machine needs to decide and expire, but no queries, history, digest and files. A
// simulation on a Store takes five times as long. It is not safe for concurrent use. It
// shares the rules with Store, in functions after and QueueOf, and no storage.
type Memory struct {
	cursor       Cursor
	collections  map[schema.CollectionName]*memoryCollection
	incarnations map[uint64]*memoryCollection // the same collections

	// messages are events by Nats-Msg-Id; remembered holds the same in the order of
	// their log time.
	messages   map[string]Repeat
	remembered []rememberedMessage

	steps int // see Steps
}

type rememberedMessage struct {
	id string
	Repeat
}

// memoryCollection is a collection with its documents. Its documents are found by id or in
// the order of their deadlines; nothing else is sorted.
type memoryCollection struct {
	*schema.Collection // replaced, never changed
	documents          map[schema.DocumentID]*memoryDocument
	waiting            [2]waiting // by Order
	held               int64
}

// memoryDocument is a document that exists.
type memoryDocument struct {
	Record
	id     schema.DocumentID
	reason string  // of its hold
	warned []int64 // deadlines of this version
	queued int     // its index in its bucket of waiting, or inSorted
}

// NewMemory returns an empty projection.
func NewMemory() *Memory {
	return &Memory{
		cursor:       Cursor{Format: formatVersion},
		collections:  make(map[schema.CollectionName]*memoryCollection),
		incarnations: make(map[uint64]*memoryCollection),
		messages:     make(map[string]Repeat),
	}
}

// Cursor returns how far the log is folded. It has no hash, since nothing compares
// it with another log.
func (m *Memory) Cursor() Cursor { return m.cursor }

// Collection is Store.Collection.
func (m *Memory) Collection(name schema.CollectionName) (*schema.Collection, bool) {
	if c := m.collections[name]; c != nil {
		return c.Collection, true
	}
	return nil, false
}

// Collections is Store.Collections.
func (m *Memory) Collections() []*schema.Collection {
	all := make([]*schema.Collection, 0, len(m.collections))
	for _, c := range m.collections {
		all = append(all, c.Collection)
	}
	slices.SortFunc(all, func(a, b *schema.Collection) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all
}

// Meta is Store.Meta.
func (m *Memory) Meta(c *schema.Collection, id schema.DocumentID) (meta Meta, ok bool, err error) {
	if in := m.incarnations[c.Incarnation]; in != nil && in.documents[id] != nil {
		return in.documents[id].Meta, true, nil
	}
	return Meta{}, false, nil
}

// Document is Store.Document: the caller owns the content.
func (m *Memory) Document(c *schema.Collection, id schema.DocumentID) (r Record, ok bool, err error) {
	if in := m.incarnations[c.Incarnation]; in != nil && in.documents[id] != nil {
		r = in.documents[id].Record
		r.Body = bytes.Clone(r.Body)
		return r, true, nil
	}
	return Record{}, false, nil
}

// Reason is Store.Reason. It is meaningful only while the document is held: a release
// leaves the reason in place.
func (m *Memory) Reason(c *schema.Collection, id schema.DocumentID) (string, error) {
	if in := m.incarnations[c.Incarnation]; in != nil && in.documents[id] != nil {
		return in.documents[id].reason, nil
	}
	return "", nil
}

// Warned is Store.Warned.
func (m *Memory) Warned(c *schema.Collection, id schema.DocumentID, meta Meta) ([]int64, error) {
	if in := m.incarnations[c.Incarnation]; in != nil && in.documents[id] != nil && in.documents[id].Version == meta.Version {
		return in.documents[id].warned, nil
	}
	return nil, nil
}

// Held is Store.Held.
func (m *Memory) Held(c *schema.Collection) int64 {
	if in := m.incarnations[c.Incarnation]; in != nil {
		return in.held
	}
	return 0
}

// IndexEntries is Store.IndexEntries; there are none.
func (m *Memory) IndexEntries(*schema.Collection, []byte) int { return 0 }

// Lookup returns a Lookup of a collection.
func (m *Memory) Lookup(c *schema.Collection) Lookup { return memoryLookup{m, c} }

type memoryLookup struct {
	*Memory
	collection *schema.Collection
}

func (l memoryLookup) Document(id schema.DocumentID) (Record, bool, error) {
	return l.Memory.Document(l.collection, id)
}

func (memoryLookup) Close() error { return nil }

// Repeated is Store.Repeated.
func (m *Memory) Repeated(id string, now int64) (r Repeat, ok bool, err error) {
	r, known := m.messages[id]
	return r, known && now-r.logTime < RepeatWindow, nil
}

// Scan is Store.Scan.
func (m *Memory) Scan(q Queue, after Entry, last int64, visit func(Entry) bool) (next int64, more bool, err error) {
	if c := m.incarnations[q.Incarnation]; c != nil {
		next, more = c.waiting[q.Order].scan(after, last, visit)
	}
	return next, more, nil
}

// Steps returns how many entries and comparisons the expiry orders have taken so far:
// their cost, which unlike a time is the same on every machine.
func (m *Memory) Steps() int { return m.steps }

// Fold applies facts, in log order and after the cursor. All must be Known. An error
// means that the machine did not decide them; the Memory is then unusable.
func (m *Memory) Fold(facts []Fact) error {
	m.dropMessageIDs()
	for i := range facts {
		if err := m.fold(&facts[i]); err != nil {
			return fmt.Errorf("projection: event %d: %w", facts[i].Seq, err)
		}
	}
	return nil
}

// fold applies one fact. Unlike Store's, it has no foreign events: all come from the
// machine above it, so a contradiction is an error.
func (m *Memory) fold(fact *Fact) error {
	e := fact.Event
	if e.Seq <= m.cursor.Seq {
		return fmt.Errorf("it is not after the cursor at %d", m.cursor.Seq)
	}
	if !fact.Known || e.Type == schema.NoEvent {
		return fmt.Errorf("this projection folds only what its own machine decided")
	}
	if err := m.apply(fact); err != nil {
		return err
	}
	c := &m.cursor
	c.Seq, c.Time, c.Mutations = e.Seq, max(c.Time, e.Time), max(c.Mutations, e.Cause)
	if !e.Type.Internal() {
		c.Last = e.Seq
	}
	if e.MsgID != "" && e.Type != schema.MutationRejected {
		r := Repeat{e.Seq, string(e.AppendMutation(nil)), e.Time}
		m.messages[e.MsgID] = r
		m.remembered = append(m.remembered, rememberedMessage{e.MsgID, r})
	}
	return nil
}

// apply applies an event on the collections or on one of their documents.
func (m *Memory) apply(fact *Fact) error {
	e := fact.Event
	if !e.Type.OnCollection() && !e.Type.OnDocument() {
		return nil // only the cursor moves
	}
	c := m.collections[e.Collection]
	if (c == nil) != (e.Type == schema.CollectionCreated) {
		return fmt.Errorf("%s of a collection that exists: %t", e.Type, c != nil)
	}
	switch e.Type {
	case schema.CollectionCreated:
		c = &memoryCollection{documents: make(map[schema.DocumentID]*memoryDocument)}
		for order := range c.waiting {
			c.waiting[order] = newWaiting(&m.steps)
		}
		m.collections[e.Collection], m.incarnations[e.Seq] = c, c
		return c.set(e, e.Seq)
	case schema.CollectionReplaced:
		return c.set(e, c.Incarnation)
	case schema.CollectionDeleted:
		delete(m.collections, e.Collection)
		delete(m.incarnations, c.Incarnation)
		return nil
	}
	return c.fold(fact)
}

// set replaces the collection and its properties; the documents stay.
func (c *memoryCollection) set(e *schema.Event, incarnation uint64) error {
	p, fault := schema.ReadProperties(e.Collection, e.Body)
	if fault != nil {
		return fault
	}
	c.Collection = &schema.Collection{Name: e.Collection, Incarnation: incarnation, Version: schema.Version(e.Seq), Time: e.Time, Properties: p}
	return nil
}

// fold applies an event on a document. It moves the document between expiry orders as
// fold.setQueue does, but leaves one that stays at its second where it is: waiting points
// to the document, so nothing has to be written.
func (c *memoryCollection) fold(fact *Fact) error {
	e := fact.Event
	d := c.documents[e.ID]
	if e.Type == schema.DocumentExpiring && d != nil && d.Version == e.Previous {
		d.warned = append(d.warned, e.Deadline.At)
		return nil
	}
	now, _ := after(fact, fact.Prior) // does not parse a Known fact
	if (d == nil) != (e.Type == schema.DocumentCreated) || d != nil && d.Version != e.Previous {
		return fmt.Errorf("%s of %q ends version %d, which the document does not have", e.Type, string(e.ID), e.Previous)
	}
	var from, to Queue
	var before, second int64
	var waited, waits bool
	if d != nil {
		from, before, waited = QueueOf(c.Collection, d.Meta)
	}
	if now.Version != 0 {
		to, second, waits = QueueOf(c.Collection, now)
	}
	stays := waited && waits && from == to && before == second
	if waited && !stays {
		c.waiting[from.Order].remove(before, d)
	}
	if d != nil && d.Held {
		c.held--
	}
	if now.Held {
		c.held++
	}
	if now.Version == 0 {
		delete(c.documents, e.ID)
		return nil
	}
	if d == nil {
		d = &memoryDocument{id: schema.DocumentID(strings.Clone(string(e.ID)))}
		c.documents[d.id] = d
	}
	if now.Version != d.Version {
		d.warned = nil
	}
	d.Meta = now
	if e.Type == schema.DocumentHeld {
		d.reason = schema.ReadReason(e.Body)
	}
	if !e.Type.KeepsContent() {
		d.Body = append(d.Body[:0], e.Body...)
	}
	if waits && !stays {
		c.waiting[to.Order].add(second, d)
	}
	return nil
}

// dropMessageIDs drops message ids that were past the window at the cursor. remembered is in the
// order of log time, so the oldest are at its beginning. A map alone would have to be
// searched.
func (m *Memory) dropMessageIDs() {
	n := 0
	for n < len(m.remembered) && m.cursor.Time-m.remembered[n].logTime >= RepeatWindow {
		// The id may have been used again since.
		if old := m.remembered[n]; m.messages[old.id] == old.Repeat {
			delete(m.messages, old.id)
		}
		n++
	}
	clear(m.remembered[:n])
	m.remembered = m.remembered[n:]
}
