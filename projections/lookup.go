package projections

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lapsedb/lapse/schema"
)

// Lookup reads documents of one collection as of its creation. Any order of ids is
// valid; ascending ids cost little more than iterating, where Store.Document seeks
// for each. Lookup exists for the sweep, which expires documents in the order of their
// deadlines and needs the content of each for its previous image. It opens its iterator at
// the first document that is not cached: a storm of expiries of young documents needs
// none.
type Lookup interface {
	// Document is Store.Document.
	Document(id schema.DocumentID) (r Record, ok bool, err error)
	Close() error
}

// Lookup returns a Lookup of a collection. Nothing may be folded until it is
// closed.
func (s *Store) Lookup(c *schema.Collection) Lookup {
	return &lookup{store: s, incarnation: c.Incarnation}
}

type lookup struct {
	store       *Store
	incarnation uint64
	key         []byte           // of the document to find
	it          *pebble.Iterator // nil until a document is not in the cache
}

func (l *lookup) Document(id schema.DocumentID) (Record, bool, error) {
	l.key = documentKey(l.key[:0], l.incarnation, id)
	if r, ok := l.store.cache.get(l.key); ok {
		return r, r.Version != 0, nil
	}
	if l.it == nil {
		all := documentKey(nil, l.incarnation, "")
		it, err := l.store.iterate(all, successor(all))
		if err != nil {
			return Record{}, false, err
		}
		l.it = it
	}
	// The id must match exactly: SeekGE may stop at the next document.
	if !l.it.SeekGE(l.key) || !bytes.Equal(l.it.Key(), l.key) {
		return Record{}, false, l.it.Error()
	}
	value, err := l.it.ValueAndErr()
	if err != nil {
		return Record{}, false, err
	}
	r, err := decodeRecord(bytes.Clone(value))
	return r, err == nil, err
}

func (l *lookup) Close() error {
	if l.it == nil {
		return nil
	}
	return errors.Join(l.it.Error(), l.it.Close())
}
