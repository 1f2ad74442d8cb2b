package projections

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lapsedb/lapse/schema"
)

// Reads. The cursor, the collections and the counts are in memory; documents are in the
// cache or in Pebble. A Store answers as of now: two reads may see different positions of
// the log. Where that matters a View (view.go) or a moment is used.
//
// A document past its deadline is returned like any other: only callers know the time.

// Cursor returns how far the log is folded.
func (s *Store) Cursor() Cursor {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cursor
}

// Wait waits until sequence seq is folded; it fails with ctx's error. The cursor moves
// after Pebble has the batch, so a read after Wait finds what the event did.
func (s *Store) Wait(ctx context.Context, seq uint64) error {
	for {
		s.mu.Lock()
		if s.cursor.Seq >= seq {
			s.mu.Unlock()
			return nil
		}
		if s.folded == nil {
			s.folded = make(chan struct{})
		}
		folded := s.folded
		s.mu.Unlock()
		select {
		case <-folded:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Collection returns the named collection if it exists. The result is shared: do not
// change it. A later fold puts another value into the map, so the result is that of one
// sequence for ever.
func (s *Store) Collection(name schema.CollectionName) (*schema.Collection, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c, ok := s.collections[name]
	return c, ok
}

// Collections returns all collections that exist, by name.
func (s *Store) Collections() []*schema.Collection {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.sortedCollections()
}

// sortedCollections is Collections; the caller holds mu.
func (s *Store) sortedCollections() []*schema.Collection {
	all := make([]*schema.Collection, 0, len(s.collections))
	for _, c := range s.collections {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *schema.Collection) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all
}

// Document reads a document, expired or not: the caller checks its Meta. The record's
// Body is shared: do not change it.
func (s *Store) Document(c *schema.Collection, id schema.DocumentID) (r Record, ok bool, err error) {
	if r, ok := s.Recent(c, id); ok {
		return r, r.Version != 0, nil
	}
	var buf [documentKeyBytes]byte
	err = s.document(documentKey(buf[:0], c.Incarnation, id), func(value []byte) error {
		r, err = decodeRecord(bytes.Clone(value))
		ok = err == nil
		return err
	})
	return r, ok, err
}

// Recent is Document from the cache of recent changes; ok is false if it is not
// there. A document that ended recently has Version 0.
func (s *Store) Recent(c *schema.Collection, id schema.DocumentID) (r Record, ok bool) {
	var buf [documentKeyBytes]byte
	return s.cache.get(documentKey(buf[:0], c.Incarnation, id))
}

// Meta is Document without the content.
func (s *Store) Meta(c *schema.Collection, id schema.DocumentID) (m Meta, ok bool, err error) {
	var buf [documentKeyBytes]byte
	key := documentKey(buf[:0], c.Incarnation, id)
	if r, ok := s.cache.meta(key); ok {
		return r.Meta, r.Version != 0, nil
	}
	return s.stored(key)
}

// stored is Meta by key, without the cache; it decodes the record and copies nothing.
func (s *Store) stored(key []byte) (m Meta, ok bool, err error) {
	err = s.document(key, func(value []byte) error {
		r, err := decodeRecord(value)
		m, ok = r.Meta, err == nil
		return err
	})
	return m, ok, err
}

// document calls read with a document's value in Pebble, if it exists. The value is
// valid only during the call.
func (s *Store) document(key []byte, read func(value []byte) error) error {
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return errors.Join(read(value), closer.Close())
}
