package projections

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/lapsedb/lapse/schema"
)

// Memory is the projection of a machine that is asked by nobody else: what
// deciding, folding and expiring need, in plain memory, and neither queries nor
// history, digest or files. It is for simulations, where nothing outlives the
// run and all of the time would go into keeping what nobody is going to read.
//
// What it holds are a few large pieces of memory without pointers, so that
// millions of documents cost the garbage collector nothing. It is not safe for
// concurrent use.
type Memory struct {
	cursor       Cursor
	shelves      map[schema.CollectionName]*shelf
	incarnations map[uint64]*shelf // the same
	seed         maphash.Seed

	// messages are the events by Nats-Msg-Id, remembered the same in the order of
	// their log time.
	messages   map[string]Repeat
	remembered []rememberedMessage
}

type rememberedMessage struct {
	id string
	Repeat
}

// shelf is a collection with what it holds.
type shelf struct {
	collection *schema.Collection // replaced, never changed
	documents  documents
	waiting    [2]waiting // by Order
}

// NewMemory returns an empty projection.
func NewMemory() *Memory {
	return &Memory{
		cursor:       Cursor{Format: formatVersion},
		shelves:      make(map[schema.CollectionName]*shelf),
		incarnations: make(map[uint64]*shelf),
		seed:         maphash.MakeSeed(),
		messages:     make(map[string]Repeat),
	}
}

// Cursor returns how far the log is folded. It has no hash: nobody is going to
// compare it with another log.
func (m *Memory) Cursor() Cursor { return m.cursor }

// Collection returns the named collection if it exists. The result is shared
// and must not be changed.
func (m *Memory) Collection(name schema.CollectionName) (*schema.Collection, bool) {
	if s := m.shelves[name]; s != nil {
		return s.collection, true
	}
	return nil, false
}

// Collections returns all collections that exist, by name.
func (m *Memory) Collections() []*schema.Collection {
	all := make([]*schema.Collection, 0, len(m.shelves))
	for _, s := range m.shelves {
		all = append(all, s.collection)
	}
	slices.SortFunc(all, func(a, b *schema.Collection) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all
}

// find returns a document and what holds it, or ok false.
func (m *Memory) find(c *schema.Collection, id schema.DocumentID) (in *documents, d *document, ok bool) {
	s := m.incarnations[c.Incarnation]
	if s == nil {
		return nil, nil, false
	}
	p := s.documents.find(maphash.String(m.seed, string(id)), id)
	if p == nowhere {
		return nil, nil, false
	}
	return &s.documents, s.documents.at(p), true
}

// Meta reads a document without its content, whether its deadline has passed or
// not.
func (m *Memory) Meta(c *schema.Collection, id schema.DocumentID) (meta Meta, ok bool, err error) {
	_, d, ok := m.find(c, id)
	if !ok {
		return Meta{}, false, nil
	}
	return d.meta(), true, nil
}

// Document is Meta with the content, which is the caller's.
func (m *Memory) Document(c *schema.Collection, id schema.DocumentID) (r Record, ok bool, err error) {
	in, d, ok := m.find(c, id)
	if !ok {
		return Record{}, false, nil
	}
	return Record{Meta: d.meta(), Body: bytes.Clone(in.body(d))}, true, nil
}

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
	return r, known && now-r.at < RepeatWindow, nil
}

// Scan is Store.Scan.
func (m *Memory) Scan(q Queue, after Entry, last int64, visit func(Entry) bool) (next int64, more bool, err error) {
	if s := m.incarnations[q.Incarnation]; s != nil {
		next, more = s.scan(q.Order, after, last, visit)
	}
	return next, more, nil
}

// Fold applies facts, in log order and continuing at the cursor. They have to be
// Known, and what contradicts what came before is no fact of its machine: after
// an error the state is in no defined state.
func (m *Memory) Fold(facts []Fact) error {
	m.forget()
	for i := range facts {
		if err := m.fold(&facts[i]); err != nil {
			return fmt.Errorf("projection: event %d: %w", facts[i].Seq, err)
		}
	}
	return nil
}

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

func (m *Memory) apply(fact *Fact) error {
	e := fact.Event
	s := m.shelves[e.Collection]
	if e.Type >= schema.MutationRejected {
		return nil // the cursor moves
	}
	if (s == nil) != (e.Type == schema.CollectionCreated) {
		return fmt.Errorf("%s where the collection exists: %t", e.Type, s != nil)
	}
	switch e.Type {
	case schema.CollectionCreated:
		s = &shelf{documents: newDocuments()}
		m.shelves[e.Collection], m.incarnations[e.Seq] = s, s
		return s.setCollection(e, e.Seq)
	case schema.CollectionReplaced:
		return s.setCollection(e, s.collection.Incarnation)
	case schema.CollectionDeleted:
		delete(m.shelves, e.Collection)
		delete(m.incarnations, s.collection.Incarnation)
		return nil
	}
	return s.document(fact, maphash.String(m.seed, string(e.ID)))
}

func (s *shelf) setCollection(e *schema.Event, incarnation uint64) error {
	p, fault := schema.ParseProperties(e.Collection, e.Body)
	if fault != nil {
		return fault
	}
	s.collection = &schema.Collection{Name: e.Collection, Incarnation: incarnation, Version: schema.Version(e.Seq), Time: e.Time, Properties: p}
	return nil
}

// document applies an event on a document; hash is that of its id.
func (s *shelf) document(fact *Fact, hash uint64) error {
	e := fact.Event
	now, _ := after(fact) // which parses nothing of what is Known
	at := s.documents.find(hash, e.ID)
	var prior Meta
	if at != nowhere {
		prior = s.documents.at(at).meta()
	}
	if (prior.Version == 0) != (e.Type == schema.DocumentCreated) || prior.Version != e.Previous {
		return fmt.Errorf("%s of %q ends version %d, which is %d", e.Type, string(e.ID), e.Previous, prior.Version)
	}
	from, before, waited := QueueOf(s.collection, prior)
	waited = waited && prior.Version != 0
	to, second, waits := QueueOf(s.collection, now)
	waits = waits && now.Version != 0
	stays := waited && waits && from == to && before == second
	if waited && !stays {
		s.waiting[from.Order].remove(&s.documents, before, at)
	}
	if now.Version == 0 {
		s.documents.remove(hash, at)
		return nil
	}
	if at == nowhere {
		at = s.documents.add(hash, e.ID)
	}
	s.documents.set(at, now, e.Body)
	if waits && !stays {
		s.waiting[to.Order].add(&s.documents, second, at)
	}
	return nil
}

// forget drops message ids that were past the window at the cursor.
func (m *Memory) forget() {
	n := 0
	for n < len(m.remembered) && m.cursor.Time-m.remembered[n].at >= RepeatWindow {
		// The id may have been used again since.
		if old := m.remembered[n]; m.messages[old.id] == old.Repeat {
			delete(m.messages, old.id)
		}
		n++
	}
	clear(m.remembered[:n])
	m.remembered = m.remembered[n:]
}
