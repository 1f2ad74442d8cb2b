package projections

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/lapsedb/lapse/schema"
)

// Verify reads all documents and both expiry orders as of the call and returns their
// digest. It fails if a content does not match its hash, a document its entry in the
// expiry order, or the totals the counts, and if ctx ends. Two sums make that cheap. Each
// document that may expire is added to one, each entry to the other. They are equal if
// both have the same documents with the same Meta. So no lookup from document to entry is
// needed, and nothing is sorted.
//
// A snapshot that was read back is verified that way.
func (s *Store) Verify(ctx context.Context) (Digest, error) {
	m, err := s.moment()
	if err != nil {
		return Digest{}, err
	}
	d, err := m.verify(ctx)
	return d, errors.Join(err, m.close())
}

func (m moment) verify(ctx context.Context) (Digest, error) {
	var cursor Cursor
	if _, err := m.get([]byte{keyCursor}, func(value []byte) (err error) {
		cursor, err = decodeCursor(value)
		return err
	}); err != nil {
		return Digest{}, err
	}
	var collections []*schema.Collection
	if err := m.scan([]byte{keyCollection}, func(key, value []byte) error {
		c, err := decodeCollection(schema.CollectionName(key[1:]), bytes.Clone(value))
		collections = append(collections, c)
		return err
	}); err != nil {
		return Digest{}, err
	}
	counts := make(map[uint64]stats, len(collections))
	for _, c := range collections {
		st, err := m.verifyCollection(ctx, c)
		if err != nil {
			return Digest{}, fmt.Errorf("collection %s: %w", c.Name, err)
		}
		counts[c.Incarnation] = st
	}
	return digestOf(cursor, collections, counts), nil
}

// verifyCollection counts a collection's documents and returns the counts.
func (m moment) verifyCollection(ctx context.Context, c *schema.Collection) (counted stats, err error) {
	var waiting, queued uint64 // sums of the documents that may expire: by document, by entry
	prefix := documentKey(nil, c.Incarnation, "")
	if err := m.scan(prefix, func(key, value []byte) error {
		id := schema.DocumentID(key[len(prefix):])
		r, err := decodeRecord(value)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if SumOf(r.Body) != r.Sum {
			return fmt.Errorf("document %q is not what was written", string(id))
		}
		counted.add(c.Incarnation, id, r.Meta, 1)
		if _, _, waits := QueueOf(c, r.Meta); waits {
			waiting += documentSum(c.Incarnation, id, r.Meta)
		}
		return nil
	}); err != nil {
		return counted, err
	}
	for _, order := range []Order{ByDeadline, ByTimestamp} {
		if err := m.scan(queueKey(nil, Queue{c.Incarnation, order}), func(key, value []byte) error {
			entry := decodeEntry(order, key, value)
			queued += documentSum(c.Incarnation, entry.ID, entry.Meta)
			return ctx.Err()
		}); err != nil {
			return counted, err
		}
	}
	if waiting != queued {
		return counted, errors.New("the expiry orders are not those of the documents")
	}
	var kept stats
	if _, err := m.get(statsKey(nil, c.Incarnation), func(value []byte) (err error) {
		kept, err = decodeStats(value)
		return err
	}); err != nil {
		return counted, err
	}
	if counted != kept {
		return counted, fmt.Errorf("the counts are %+v and the documents %+v", kept, counted)
	}
	return counted, nil
}

// scan visits all keys with a prefix in order. key and value are valid only
// during the visit.
func (m moment) scan(prefix []byte, visit func(key, value []byte) error) error {
	it, err := m.iterate(prefix, successor(prefix))
	if err != nil {
		return err
	}
	return visitAll(it, visit)
}
