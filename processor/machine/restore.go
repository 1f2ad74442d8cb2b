package machine

import (
	"slices"
	"strconv"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// A restore needs the content of an earlier version, which only the log has: the projection
// has present documents. Reading it may take long, and the machine does no I/O. So it asks
// History, and decides Recall if that has to read first: the writer reads on another
// goroutine and decides the mutation again, by when the answer is at hand. Pending events
// are looked at first, since the log does not have them yet.
//
//	DocumentHeld 90 ─Previous─► DocumentTouched 70 ─Content─► DocumentCreated 12

// Former is a version in the folded log that a restore asks for.
type Former struct {
	Event   *schema.Event // the event asked for; nil if the log has none
	Content *schema.Event // the event with the content of its version; nil if the log has none
}

// History reads the folded log for a machine.
type History interface {
	// Former returns the event of a sequence, of the mutation's document and in
	// collection c; of the last event of that id if seq is 0. ok is false if it first has
	// to be read: then the outcome of the mutation is NeedLog.
	Former(c *schema.Collection, mu *schema.Mutation, seq uint64) (f Former, ok bool, err error)
}

// Log reads the folded log for FindFormer.
type Log interface {
	// Last returns the sequence of an event of the last incarnation of an id, from which
	// Previous leads to its versions; 0 if there is none.
	Last(schema.CollectionName, schema.DocumentID) (uint64, error)
	// Event returns the event of a sequence; nil if the log does not have it.
	Event(seq uint64) (*schema.Event, error)
}

// AtHand is the History of a log that can be read at once.
type AtHand struct{ Log }

// Former is History.Former; ok is always true.
func (h AtHand) Former(c *schema.Collection, mu *schema.Mutation, seq uint64) (f Former, ok bool, err error) {
	f, err = FindFormer(h.Log, c.Name, mu.ID, seq)
	return f, true, err
}

// FindFormer is History.Former on a log. It reads two events, and more only for a version
// that an older version of lapse touched: one for each of its touches.
func FindFormer(log Log, name schema.CollectionName, id schema.DocumentID, seq uint64) (f Former, err error) {
	if seq == 0 {
		if seq, err = log.Last(name, id); seq == 0 || err != nil {
			return Former{}, err
		}
	}
	if f.Event, err = log.Event(seq); err != nil {
		return Former{}, err
	}
	if f.Event != nil && !isOf(f.Event, name, id) {
		f.Event = nil
	}
	for f.Content = f.Event; f.Content != nil && f.Content.Type.KeepsContent(); {
		if f.Content, err = log.Event(contentOf(f.Content)); err != nil {
			return Former{}, err
		}
		if f.Content != nil && !isOf(f.Content, name, id) {
			f.Content = nil
		}
	}
	return f, nil
}

func isOf(e *schema.Event, name schema.CollectionName, id schema.DocumentID) bool {
	return e.Collection == name && e.ID == id && e.Type.OnDocument()
}

// contentOf returns the sequence of the event that e points to for its content.
func contentOf(e *schema.Event) uint64 {
	if e.Content != 0 && e.Content < e.Previous {
		return uint64(e.Content)
	}
	return uint64(e.Previous)
}

// former returns the content that a restore brings back, and its version. If the mutation
// names none, it is the last version of the last incarnation, from the event that ended it.
// recall means that the log has to be read first.
func (m *Machine) former(c *schema.Collection, mu *schema.Mutation) (d schema.Document, version schema.Version, recall bool, fault *schema.Error) {
	f, ok, err := m.findFormer(c, mu)
	switch e := f.Event; {
	case err != nil:
		return d, 0, false, schema.AsError(err)
	case !ok:
		return d, 0, true, nil
	case e == nil || mu.Version != "" && !e.Type.MakesVersion() || f.Content == nil:
		return d, 0, false, noVersion(c, mu)
	case len(f.Content.Body) == 0:
		return d, 0, false, schema.ErrVersionNotFound.With("the log has no last content of %q in %s, which was ended while previousImages was false: name a version of it whose event the log has", string(mu.ID), c.Name)
	case e.Type.MakesVersion():
		version = schema.Version(e.Seq)
	default:
		version = e.Previous
	}
	m.read(len(f.Content.Body))
	d, fault = schema.ReadDocument(mu.ID, slices.Clone(f.Content.Body))
	return d, version, false, fault
}

// findFormer finds the version that a restore names, among pending events and in History.
func (m *Machine) findFormer(c *schema.Collection, mu *schema.Mutation) (f Former, ok bool, err error) {
	var seq uint64
	if mu.Version == "" {
		seq = m.lastPending(c.Name, mu.ID)
	} else if seq, _ = strconv.ParseUint(mu.Version, 10, 64); seq == 0 || seq > m.seq || strconv.FormatUint(seq, 10) != mu.Version {
		return f, true, nil // no version is written like that
	}
	if f.Event = m.pendingEvent(seq); f.Event == nil {
		if m.History == nil {
			return f, true, nil
		}
		return m.History.Former(c, mu, seq)
	}
	if !isOf(f.Event, c.Name, mu.ID) {
		return Former{}, true, nil
	}
	for f.Content = f.Event; f.Content.Type.KeepsContent(); {
		seq = contentOf(f.Content)
		if f.Content = m.pendingEvent(seq); f.Content != nil {
			continue
		}
		// Nothing about the document was folded since a pending event kept its content, in
		// this incarnation of the collection or, if its deletion is pending, in the last.
		folded, ok := m.Store.Collection(c.Name)
		if !ok {
			return f, true, nil
		}
		r, _, err := m.Store.Document(folded, mu.ID)
		if err == nil && r.Version != 0 && r.ContentVersion() <= schema.Version(seq) && schema.Version(seq) <= r.Version {
			f.Content = &schema.Event{Type: schema.DocumentReplaced, Body: r.Body}
		}
		return f, true, err
	}
	return f, true, nil
}

// lastPending returns the sequence of the last pending event of an id, 0 if there is none.
// It may be of a collection that another pending event deleted.
func (m *Machine) lastPending(name schema.CollectionName, id schema.DocumentID) uint64 {
	for i := len(m.pending) - 1; i >= 0; i-- {
		if e := m.pending[i].Event; e.ID == id && isOf(e, name, id) {
			return e.Seq
		}
	}
	return 0
}

// pendingEvent returns the pending event of a sequence, nil if there is none.
func (m *Machine) pendingEvent(seq uint64) *schema.Event {
	if i, ok := slices.BinarySearchFunc(m.pending, seq, func(f projections.Fact, seq uint64) int {
		return int(int64(f.Seq) - int64(seq))
	}); ok {
		return m.pending[i].Event
	}
	return nil
}

func noVersion(c *schema.Collection, mu *schema.Mutation) *schema.Error {
	if mu.Version == "" {
		return schema.ErrVersionNotFound.With("the log has no content of a document %q in %s: it was never there, or its events are past the retention", string(mu.ID), c.Name)
	}
	return schema.ErrVersionNotFound.With("the log has no content of version %.40q of document %q in %s: choose a version of its history whose content the log still has", mu.Version, string(mu.ID), c.Name)
}
