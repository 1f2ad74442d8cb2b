package machine

import (
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// A request of a few bytes can make the machine read and write whole documents: a patch, a
// delete with its previous image, a restore, a touch whose fold rewrites index entries. So
// limits count work, not requests: about the bytes of content that are read, written and
// indexed.

const (
	// indexEntryWork is the work of folding an index entry: about the bytes of content
	// that are written in the same time.
	indexEntryWork = 200
	// bytesPerEntry is the least that a document has on average for each index entry: a
	// short element of an array and a comma.
	bytesPerEntry = 3
	// fewEntries need not be counted.
	fewEntries = 100
)

// Work returns the work done so far: bytes of documents read, and the work of folding the
// events decided. It only grows.
func (m *Machine) Work() int { return m.work }

// PendingWork returns the work of folding the pending events.
func (m *Machine) PendingWork() int { return m.folds }

// read counts the bytes of a document that was read.
func (m *Machine) read(bytes int) {
	m.reads += bytes
	m.work += bytes
}

// foldWork returns the work of folding an event: its body, and for a document in consistent
// indexes the content before it and its index entries. In an atomic batch, whose work is
// limited, the entries are counted; else their number is an upper bound, which costs
// nothing to compute.
func (m *Machine) foldWork(fact *projections.Fact) int {
	c, ok := m.Store.Collection(fact.Collection)
	if !ok || fact.Prior.Version == 0 || fact.Type == schema.DocumentExpiring || c.IndexingMode != schema.Consistent || len(c.IncludedPaths) == 0 {
		return len(fact.Body)
	}
	size, paths := int(fact.Prior.Size), len(c.IncludedPaths)
	entries := paths + min(size/bytesPerEntry, paths*projections.MaxMembers)
	if m.counts && entries > fewEntries {
		r := m.overlay.documents[DocumentKey{Incarnation: c.Incarnation, ID: fact.ID}].Record
		if r.Body == nil {
			r, _, _ = m.Store.Document(c, fact.ID)
		}
		entries = m.Store.IndexEntries(c, r.Body)
	}
	return len(fact.Body) + size + entries*indexEntryWork
}
