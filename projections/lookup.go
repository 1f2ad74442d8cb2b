package projections

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lapsedb/lapse/schema"
)

// Lookup reads documents of one collection as they were when it was made, for
// whoever reads many: ids that ascend cost little more than going from one
// document to the next, where Store.Document looks for each from the top. Any
// order is right.
type Lookup interface {
	// Document is Store.Document.
	Document(id schema.DocumentID) (r Record, ok bool, err error)
	Close() error
}

// Lookup returns a Lookup of a collection. Nothing may be folded until it is
// closed.
func (s *Store) Lookup(c *schema.Collection) Lookup {
	return &lookup{store: s, key: documentKey(nil, c.Incarnation, "")}
}

type lookup struct {
	store *Store
	key   []byte           // of the document looked for; it begins with that of the collection
	it    *pebble.Iterator // nil until one is not in memory
}

func (l *lookup) Document(id schema.DocumentID) (Record, bool, error) {
	const prefix = 1 + 8
	l.key = append(l.key[:prefix], id...)
	if r, ok := l.store.cache.get(l.key); ok {
		return r, r.Version != 0, nil
	}
	if l.it == nil {
		it, err := l.store.iterate(bytes.Clone(l.key[:prefix]), successor(l.key[:prefix]))
		if err != nil {
			return Record{}, false, err
		}
		l.it = it
	}
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
