package projections

import (
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
		if read, err := s.Verify(t.Context()); read != d || err != nil {
			t.Errorf("%q: the digest of what is on disk is %v, want %v (%v)", name, read, d, err)
		}
		if want := uint64(len(l.facts)); d.Seq != want {
			t.Errorf("%q: the digest is of %d, want %d", name, d.Seq, want)
		}
	}
}

func TestDigestText(t *testing.T) {
	if got := (Digest{Seq: 42, Sum: 0x9f86d081884c7d6}).String(); got != "42:09f86d081884c7d6" {
		t.Errorf("it is written %s", got)
	}
}

// TestVerify: Verify finds each contradiction between entries on disk.
func TestVerify(t *testing.T) {
	filled := func() *Store {
		s, l := open(t), &logbook{now: 1000}
		l.collection(schema.CollectionCreated, "orders", `{"defaultTtl":10}`)
		l.created("orders", "a", `{"id":"a","n":1}`)
		l.created("orders", "b", `{"id":"b","ttl":3}`)
		l.created("orders", "c", `{"id":"c","ttl":-1}`)
		catchUp(t, s, l)
		return s
	}
	s, orders := filled(), &schema.Collection{Incarnation: 1}
	a, _, err := s.Document(orders, "a")
	must(t, err)
	b, _, err := s.Document(orders, "b")
	must(t, err)
	next, bytes, sum := b.Meta, s.stats[1], s.stats[1]
	next.Version++
	bytes.bytes++
	sum.sum++
	for name, damage := range map[string]struct{ key, value []byte }{ // without a value the key is lost
		"a content":              {documentKey(nil, 1, "a"), appendRecord(nil, a.Meta, []byte(`{"id":"a","n":2}`))},
		"a version":              {documentKey(nil, 1, "b"), appendRecord(nil, next, b.Body)},
		"a document lost":        {documentKey(nil, 1, "a"), nil},
		"a document short":       {documentKey(nil, 1, "a"), []byte{1, 2, 3}},
		"a countdown lost":       {expiryKey(nil, Queue{1, ByTimestamp}, 1000, "a"), nil},
		"a countdown moved":      {expiryKey(nil, Queue{1, ByDeadline}, 1004, "b"), appendEntryValue(nil, b.Meta, nil)},
		"a countdown of nothing": {expiryKey(nil, Queue{1, ByTimestamp}, 1000, "x"), appendEntryValue(nil, Meta{Version: 7}, nil)},
		"the counts":             {statsKey(nil, 1), bytes.encode()},
		"the sum":                {statsKey(nil, 1), sum.encode()},
	} {
		s := filled()
		if d, err := s.Verify(t.Context()); d != s.Digest() || err != nil {
			t.Fatalf("%v, want %v (%v)", d, s.Digest(), err)
		}
		if name == "a countdown moved" {
			must(t, s.db.Delete(expiryKey(nil, Queue{1, ByDeadline}, 1003, "b"), pebble.NoSync))
		}
		if damage.value == nil {
			must(t, s.db.Delete(damage.key, pebble.NoSync))
		} else {
			must(t, s.db.Set(damage.key, damage.value, pebble.NoSync))
		}
		if d, err := s.Verify(t.Context()); err == nil {
			t.Errorf("%s is not noticed: %v", name, d)
		}
	}
}
