package machine

import (
	"slices"
	"strconv"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// maxTouches limits how many touches of a version the search for its content reads, one
// by one.
const maxTouches = 1000

// former returns the content that a restore brings back, and its version. If the mutation
// names none, it is the last version of the last life, from the event that ended it.
func (m *Machine) former(c *schema.Collection, mu *schema.Mutation) (d schema.Document, version schema.Version, fault *schema.Error) {
	e, fault := m.formerEvent(c, mu)
	if fault != nil {
		return d, 0, fault
	}
	version = schema.Version(e.Seq)
	body := e.Body
	if !e.Type.MakesVersion() {
		version = e.Previous
	}
	switch e.Type {
	case schema.DocumentCreated, schema.DocumentReplaced:
	case schema.DocumentDeleted, schema.DocumentExpired:
		if len(body) == 0 {
			return d, 0, schema.ErrVersionNotFound.With("the log has no last content of %q in %s, which was ended while previousImages was false: name a version of it whose event the log has", string(mu.ID), c.Name)
		}
	default:
		if body, fault = m.contentBefore(c, mu, e); fault != nil {
			return d, 0, fault
		}
	}
	d, fault = schema.ReadDocument(mu.ID, slices.Clone(body))
	return d, version, fault
}

// formerEvent returns the event of the version that a restore names, or the last one of
// the id.
func (m *Machine) formerEvent(c *schema.Collection, mu *schema.Mutation) (*schema.Event, *schema.Error) {
	var seq uint64
	if mu.Version != "" {
		seq, _ = strconv.ParseUint(mu.Version, 10, 64)
		if strconv.FormatUint(seq, 10) != mu.Version {
			seq = 0 // no version is written like that
		}
	} else if seq = m.lastPending(c.Name, mu.ID); seq == 0 && m.History != nil {
		var err error
		if seq, err = m.History.Last(c.Name, mu.ID); err != nil {
			return nil, schema.AsError(err)
		}
	}
	e, fault := m.event(seq)
	if fault != nil {
		return nil, fault
	}
	if e == nil || e.Collection != c.Name || e.ID != mu.ID || mu.Version != "" && !e.Type.MakesVersion() {
		return nil, noVersion(c, mu)
	}
	return e, nil
}

// lastPending returns the sequence of the last pending event of an id, 0 if there is none.
// It may be of a collection that another pending event deleted.
func (m *Machine) lastPending(name schema.CollectionName, id schema.DocumentID) uint64 {
	for i := len(m.pending) - 1; i >= 0; i-- {
		if e := m.pending[i].Event; e.ID == id && e.Collection == name && e.Type.OnDocument() {
			return e.Seq
		}
	}
	return 0
}

// contentBefore returns the content of the version that e refers to; e carries none.
func (m *Machine) contentBefore(c *schema.Collection, mu *schema.Mutation, e *schema.Event) ([]byte, *schema.Error) {
	for range maxTouches {
		before, fault := m.event(uint64(e.Previous))
		if fault != nil {
			return nil, fault
		}
		if before == nil {
			break
		}
		if e = before; e.Type != schema.DocumentTouched {
			return e.Body, nil
		}
	}
	return nil, noVersion(c, mu)
}

func noVersion(c *schema.Collection, mu *schema.Mutation) *schema.Error {
	if mu.Version == "" {
		return schema.ErrVersionNotFound.With("the log has no content of a document %q in %s: it was never there, or its events are past the retention", string(mu.ID), c.Name)
	}
	return schema.ErrVersionNotFound.With("the log has no content of version %.40q of document %q in %s: take a version of its history whose content the log still has", mu.Version, string(mu.ID), c.Name)
}

// event returns an event of the log or a pending one, nil if there is none.
func (m *Machine) event(seq uint64) (*schema.Event, *schema.Error) {
	if i, ok := slices.BinarySearchFunc(m.pending, seq, func(f projections.Fact, seq uint64) int {
		return int(int64(f.Seq) - int64(seq))
	}); ok {
		return m.pending[i].Event, nil
	}
	if seq == 0 || seq > m.seq || m.History == nil {
		return nil, nil
	}
	e, err := m.History.Event(seq)
	if err != nil {
		return nil, schema.AsError(err)
	}
	return e, nil
}
