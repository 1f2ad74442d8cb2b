package projections

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapsedb/lapse/schema"
)

// TestDigestsDifferByState: logs that end in different states have different
// digests, also if only the content or time of an event differs.
func TestDigestsDifferByState(t *testing.T) {
	seen := make(map[uint64]string)
	for name, change := range map[string]func(*logbook){
		"as it is":            func(*logbook) {},
		"another content":     func(l *logbook) { l.facts[1].Body = []byte(`{"id":"a","n":2}`) },
		"another ttl":         func(l *logbook) { l.facts[1].Body = []byte(`{"id":"a","n":1,"ttl":9}`) },
		"another id":          func(l *logbook) { l.facts[1].ID, l.facts[1].Body = "c", []byte(`{"id":"c","n":1}`) },
		"later":               func(l *logbook) { l.facts[1].Time += 1000 },
		"another collection":  func(l *logbook) { l.facts[0].Collection, l.facts[1].Collection = "carts", "carts" },
		"another default":     func(l *logbook) { l.facts[0].Body = []byte(`{"defaultTtl":11}`) },
		"no images":           func(l *logbook) { l.facts[0].Body = []byte(`{"defaultTtl":10,"previousImages":false}`) },
		"metadata":            func(l *logbook) { l.facts[0].Body = []byte(`{"defaultTtl":10,"metadata":{"a":"1"}}`) },
		"other metadata":      func(l *logbook) { l.facts[0].Body = []byte(`{"defaultTtl":10,"metadata":{"a":"2"}}`) },
		"deleted":             func(l *logbook) { l.document(schema.DocumentDeleted, "orders", "a", 2, "") },
		"collection deleted":  func(l *logbook) { l.collection(schema.CollectionDeleted, "orders", `{}`) },
		"one more":            func(l *logbook) { l.created("orders", "b", `{"id":"b"}`) },
		"an empty collection": func(l *logbook) { l.collection(schema.CollectionCreated, "carts", `{}`) },
		"created again": func(l *logbook) {
			l.collection(schema.CollectionDeleted, "orders", `{}`)
			l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":10}`)
		},
	} {
		s, l := open(t), &logbook{now: 1000}
		l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":10}`)
		l.created("orders", "a", `{"id":"a","n":1}`)
		change(l)
		catchUp(t, s, l)
		d := s.Digest()
		if other, ok := seen[d.Sum]; ok {
			t.Errorf("%q and %q have the digest %v", name, other, d)
		}
		seen[d.Sum] = name
		if want := uint64(len(l.facts)); d.Seq != want {
			t.Errorf("%q: the digest is of %d, want %d", name, d.Seq, want)
		}
	}
}

// TestDigestIgnoresInternalEvents: internal events do not count, since exports lack
// them.
func TestDigestIgnoresInternalEvents(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":10}`)
	catchUp(t, s, l)
	before := s.Digest()
	l.write(schema.Event{Type: schema.WriterStarted, Collection: schema.InternalCollection})
	catchUp(t, s, l)
	if d := s.Digest(); d != before || s.Cursor().Seq != 2 {
		t.Errorf("the digest was %v and is %v at %d", before, d, s.Cursor().Seq)
	}
}

func TestDigestText(t *testing.T) {
	if got := (Digest{Seq: 42, Sum: 0x9f86d081884c7d6}).String(); got != "42:09f86d081884c7d6" {
		t.Errorf("it is written %s", got)
	}
}

// TestVerify: Verify finds each contradiction between entries on disk.
func TestVerify(t *testing.T) {
	orders := &schema.Collection{Incarnation: 1}
	for name, damage := range map[string]func(*Store) error{
		"a content": func(s *Store) error {
			r, _, _ := s.Document(orders, "a")
			return s.db.Set(documentKey(nil, 1, "a"), appendRecord(nil, r.Meta, []byte(`{"id":"a","n":2}`)), pebble.NoSync)
		},
		"a version": func(s *Store) error {
			r, _, _ := s.Document(orders, "b")
			r.Version++
			return s.db.Set(documentKey(nil, 1, "b"), appendRecord(nil, r.Meta, r.Body), pebble.NoSync)
		},
		"a document lost": func(s *Store) error { return s.db.Delete(documentKey(nil, 1, "a"), pebble.NoSync) },
		"a document short": func(s *Store) error {
			return s.db.Set(documentKey(nil, 1, "a"), []byte{1, 2, 3}, pebble.NoSync)
		},
		"a countdown lost": func(s *Store) error {
			return s.db.Delete(expiryKey(nil, Queue{1, ByTimestamp}, 1000, "a"), pebble.NoSync)
		},
		"a countdown moved": func(s *Store) error {
			r, _, _ := s.Document(orders, "b")
			key := expiryKey(nil, Queue{1, ByDeadline}, 1003, "b")
			if err := s.db.Delete(key, pebble.NoSync); err != nil {
				return err
			}
			return s.db.Set(expiryKey(nil, Queue{1, ByDeadline}, 1004, "b"), appendEntryValue(nil, r.Meta, nil), pebble.NoSync)
		},
		"a countdown of nothing": func(s *Store) error {
			return s.db.Set(expiryKey(nil, Queue{1, ByTimestamp}, 1000, "x"), appendEntryValue(nil, Meta{Version: 7}, nil), pebble.NoSync)
		},
		"the counts": func(s *Store) error {
			st := s.stats[1]
			st.bytes++
			return s.db.Set(statsKey(nil, 1), st.encode(), pebble.NoSync)
		},
		"the sum": func(s *Store) error {
			st := s.stats[1]
			st.sum++
			return s.db.Set(statsKey(nil, 1), st.encode(), pebble.NoSync)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, l := open(t), &logbook{now: 1000}
			l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":10}`)
			l.created("orders", "a", `{"id":"a","n":1}`)
			l.created("orders", "b", `{"id":"b","ttl":3}`)
			l.created("orders", "c", `{"id":"c","ttl":-1}`)
			catchUp(t, s, l)
			if d, err := s.Verify(context.Background()); d != s.Digest() || err != nil {
				t.Fatalf("%v, want %v (%v)", d, s.Digest(), err)
			}
			if err := damage(s); err != nil {
				t.Fatal(err)
			}
			if d, err := s.Verify(context.Background()); err == nil {
				t.Errorf("it is not noticed: %v", d)
			}
		})
	}
}
