package projections

import (
	"errors"

	"github.com/lapsedb/lapse/schema"
)

// Reason returns the reason of the hold of a document, "" if it has none or is not held.
func (s *Store) Reason(c *schema.Collection, id schema.DocumentID) (reason string, err error) {
	var buf [documentKeyBytes]byte
	err = s.document(holdKey(buf[:0], c.Incarnation, id), func(value []byte) error {
		_, _, reason, err = decodeHold(value)
		return err
	})
	return reason, err
}

// Lifetime returns the deadline and hold of a document of the view.
func (v *View) Lifetime(id schema.DocumentID, m Meta) (l schema.Lifetime, err error) {
	l = schema.Lifetime{Deadline: m.Deadline(v.collection), Held: m.Held}
	if m.Held {
		_, err = v.moment.get(holdKey(nil, v.collection.Incarnation, id), func(value []byte) error {
			_, _, l.Reason, err = decodeHold(value)
			return err
		})
	}
	return l, err
}

// Held returns the number of held documents of a collection.
func (s *Store) Held(c *schema.Collection) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stats[c.Incarnation].held
}

// IndexEntries returns the number of entries of a document with the given content in the
// consistent indexes of its collection. Only the goroutine that folds may call it. The
// machine counts these as work before it decides a write, so that a turn stays bounded;
// see machine/work.go.
func (s *Store) IndexEntries(c *schema.Collection, body []byte) int {
	set := s.indexesOf(c.Incarnation)
	if len(set.Indexes) == 0 || set.lazy() {
		return 0
	}
	all := &s.indexer.before
	all.reset()
	all.add(set, false, body, Meta{})
	return len(all.list)
}

// Held iterates over the ids of held documents, as Documents does over documents.
func (v *View) Held(idPrefix string, after schema.DocumentID) *Documents {
	return v.documentsBelow(holdKey(nil, v.collection.Incarnation, ""), idPrefix, after)
}

// EachHeld visits the held documents of all collections. It ends at a collection that was
// deleted meanwhile: call it while nothing is folded.
func (s *Store) EachHeld(visit func(schema.CollectionName, schema.DocumentID)) error {
	for _, c := range s.Collections() {
		v, ok, err := s.View(c.Name)
		if err != nil || !ok {
			return err
		}
		held := v.Held("", "")
		for held.Next() {
			visit(c.Name, schema.DocumentID(held.ID()))
		}
		if err := errors.Join(held.Close(), v.Close()); err != nil {
			return err
		}
	}
	return nil
}
