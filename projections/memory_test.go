package projections

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/schema"
	"pgregory.net/rapid"
)

// TestMemoryMatchesStore: after the same random facts, a Memory and a Store return the
// same cursor, collections, documents, repeats and scans. Holds, warnings and Lookup are
// not compared.
func TestMemoryMatchesStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &both{t: t, store: openIn(t, vfs.NewMem()), memory: NewMemory(), now: 1000_000, known: make(map[string]Meta)}
		defer b.store.Close()
		b.store.cache = newDocumentCache(rapid.SampledFrom([]int64{1 << 20, 50 * cacheOverhead, 1}).Draw(t, "cache"))
		b.collection(t)
		t.Repeat(map[string]func(*rapid.T){
			"collection": b.collection,
			"document":   b.document,
			"document 2": b.document,
			"document 3": b.document,
			"document 4": b.document,
			"other":      b.other,
			"clock": func(t *rapid.T) {
				b.now += rapid.SampledFrom([]int64{1, 999, 1000, 5000, RepeatWindow - 1000, RepeatWindow - 1, RepeatWindow}).Draw(t, "ms")
			},
			"fold":   func(*rapid.T) { b.fold() },
			"scan":   b.scan,
			"scan 2": b.scan,
			"":       func(*rapid.T) {},
		})
		b.fold()
		b.compare()
		b.scan(t)
	})
}

type both struct {
	t      *rapid.T
	store  *Store
	memory *Memory
	now    int64 // ms
	seq    uint64
	facts  []Fact // to be folded

	collections map[schema.CollectionName]uint64 // incarnations, with b.facts
	known       map[string]Meta                  // documents, likewise
}

var (
	bothNames = []schema.CollectionName{"carts", "orders"}
	bothIDs   = []string{"a", "b", "order-1", "order-10", "order-100000001", "order-100000002", "order-2", "ü/1", strings.Repeat("x", 255)}
)

func (b *both) add(fact Fact) {
	b.seq++
	fact.Seq, fact.Time, fact.Known = b.seq, b.now, true
	fact.MsgID = rapid.SampledFrom([]string{"", "", "m1", "m2"}).Draw(b.t, "msgID")
	fact.MsgOp = rapid.SampledFrom([]schema.Op{schema.NoOp, schema.DocumentUpsert, schema.CollectionReplace}).Draw(b.t, "msgOp")
	b.facts = append(b.facts, fact)
}

func (b *both) collection(t *rapid.T) {
	name := rapid.SampledFrom(bothNames).Draw(t, "collection")
	properties := rapid.SampledFrom([]string{`{}`, `{"defaultTtl":5}`, `{"defaultTtl":-1,"previousImages":false}`, `{"metadata":{"b":"<","a":""}}`}).Draw(t, "properties")
	e := &schema.Event{Type: schema.CollectionCreated, Collection: name, Body: []byte(properties)}
	if _, is := b.collections[name]; is {
		e.Type = rapid.SampledFrom([]schema.EventType{schema.CollectionReplaced, schema.CollectionDeleted}).Draw(t, "type")
	}
	b.add(Fact{Event: e})
	switch e.Type {
	case schema.CollectionCreated:
		if b.collections == nil {
			b.collections = make(map[schema.CollectionName]uint64)
		}
		b.collections[name] = b.seq
	case schema.CollectionDeleted:
		delete(b.collections, name)
	}
}

func (b *both) document(t *rapid.T) {
	name := rapid.SampledFrom(bothNames).Draw(t, "collection")
	incarnation, is := b.collections[name]
	if !is {
		return
	}
	id := rapid.OneOf(rapid.SampledFrom(bothIDs), rapid.StringMatching(`order-[0-9]{1,2}`)).Draw(t, "id")
	key := fmt.Sprint(incarnation, id)
	prior := b.known[key]
	e := &schema.Event{Type: schema.DocumentCreated, Collection: name, ID: schema.DocumentID(id), Previous: prior.Version}
	fact := Fact{Event: e, Known: true, Incarnation: incarnation, Prior: prior}
	if prior.Version != 0 {
		e.Type = rapid.SampledFrom([]schema.EventType{schema.DocumentReplaced, schema.DocumentReplaced, schema.DocumentDeleted, schema.DocumentExpired, schema.DocumentTouched, schema.DocumentTouched}).Draw(t, "type")
	}
	if e.Type == schema.DocumentCreated || e.Type == schema.DocumentReplaced {
		size := rapid.OneOf(rapid.IntRange(0, 100), rapid.SampledFrom([]int{1000, 5000, 300_000})).Draw(t, "size")
		e.Body = fmt.Appendf(nil, `{"n":%d,"x":"%s"}`, b.seq, strings.Repeat("x", size))
		fact.TTL = rapid.SampledFrom([]schema.TTL{schema.Inherit, schema.Never, 1, 5, schema.MaxTTL}).Draw(t, "ttl")
		fact.Sum = SumOf(e.Body)
	}
	if e.Type == schema.DocumentTouched {
		fact.TTL, fact.Sum = prior.TTL, prior.Sum
	}
	b.add(fact)
	b.known[key], _ = after(&fact, prior)
}

// other adds an event that only moves the cursor.
func (b *both) other(t *rapid.T) {
	e := &schema.Event{Type: schema.MutationRejected, Collection: "orders", Body: []byte(`{}`), Cause: rapid.Uint64Range(0, 9).Draw(t, "cause")}
	if rapid.Bool().Draw(t, "internal") {
		e.Type, e.Collection, e.Body = schema.MutationRepeated, schema.InternalCollection, nil
	}
	b.add(Fact{Event: e})
}

func (b *both) check(err error) {
	must(b.t, err)
}

func (b *both) fold() {
	b.check(b.store.Fold(b.facts))
	b.check(b.memory.Fold(b.facts))
	b.facts = nil
}

// same fails the test unless both answers are equal.
func (b *both) same(what, store, memory any) {
	if want, got := fmt.Sprintf("%+v", store), fmt.Sprintf("%+v", memory); got != want {
		b.t.Fatalf("%v: the store says\n%.1000s\nthe memory\n%.1000s", what, want, got)
	}
}

func (b *both) compare() {
	want, got := b.store.Cursor(), b.memory.Cursor()
	want.Hash, want.Before = 0, 0
	b.same("cursor", want, got)
	all := func(collections []*schema.Collection) (s string) {
		for _, c := range collections {
			s += fmt.Sprintf("%+v\n", *c)
		}
		return s
	}
	b.same("collections", all(b.store.Collections()), all(b.memory.Collections()))
	for _, id := range []string{"", "m1", "m2"} {
		for _, now := range []int64{b.now, b.now + RepeatWindow - 1} {
			r, ok, err := b.store.Repeated(id, now)
			b.check(err)
			again, also, _ := b.memory.Repeated(id, now)
			if ok != also || ok && r != again {
				b.t.Fatalf("%s is a repeat of %v %t in the store, of %v %t in the memory", id, r, ok, again, also)
			}
		}
	}
	for _, name := range bothNames {
		c, ok := b.store.Collection(name)
		if _, also := b.memory.Collection(name); ok != also {
			b.t.Fatalf("%s exists %t in the store, %t in the memory", name, ok, also)
		}
		if !ok {
			continue
		}
		ids := bothIDs
		for n := range 100 {
			ids = append(ids[:len(ids):len(ids)], fmt.Sprint("order-", n))
		}
		for _, id := range ids {
			r, ok, err := b.store.Document(c, schema.DocumentID(id))
			b.check(err)
			s, also, _ := b.memory.Document(c, schema.DocumentID(id))
			if ok != also || r.Meta != s.Meta || !bytes.Equal(r.Body, s.Body) {
				b.t.Fatalf("%s/%s is %+v %.100s in the store, %+v %.100s in the memory", name, id, r.Meta, r.Body, s.Meta, s.Body)
			}
			meta, also, _ := b.memory.Meta(c, schema.DocumentID(id))
			b.same(id, fmt.Sprint(r.Meta, ok), fmt.Sprint(meta, also))
		}
	}
}

// scan compares scans of all queues, between random positions, some ended by visit.
func (b *both) scan(t *rapid.T) {
	for _, c := range b.store.Collections() {
		for _, order := range []Order{ByDeadline, ByTimestamp} {
			second := func(name string) int64 { return b.now/1000 + rapid.Int64Range(-12, 6).Draw(t, name) }
			from := Entry{Second: second("from")}
			if rapid.Bool().Draw(t, "after an id") {
				from.ID = schema.DocumentID(rapid.SampledFrom(bothIDs).Draw(t, "id"))
			}
			last := rapid.SampledFrom([]int64{-1, math.MaxInt64, second("last")}).Draw(t, "until")
			enough := rapid.SampledFrom([]int{1, 3, math.MaxInt}).Draw(t, "enough")
			walk := func(scan func(Queue, Entry, int64, func(Entry) bool) (int64, bool, error)) string {
				var entries []Entry
				next, more, err := scan(Queue{c.Incarnation, order}, from, last, func(e Entry) bool {
					e.Meta.Content = 0 // not in a key of the store
					entries = append(entries, e)
					return len(entries) < enough
				})
				return fmt.Sprintf("%+v %d %t %v", entries, next, more, err)
			}
			b.same(fmt.Sprint("from ", from, " to ", last), walk(b.store.Scan), walk(b.memory.Scan))
		}
	}
}

// TestMemoryRefusesUndecided: Fold fails for facts that the machine cannot have decided.
func TestMemoryRefusesUndecided(t *testing.T) {
	created := func(seq uint64, name schema.CollectionName) Fact {
		return Fact{Event: &schema.Event{Seq: seq, Type: schema.CollectionCreated, Collection: name, Body: []byte(`{}`)}, Known: true}
	}
	for name, fact := range map[string]Fact{
		"an event of before":         created(1, "c"),
		"what another one decided":   {Event: created(2, "c").Event},
		"a foreign message":          {Event: &schema.Event{Seq: 2}, Known: true},
		"a collection that exists":   created(2, "orders"),
		"a collection that does not": {Event: &schema.Event{Seq: 2, Type: schema.CollectionDeleted, Collection: "c"}, Known: true},
		"a document that does not":   {Event: &schema.Event{Seq: 2, Type: schema.DocumentExpired, Collection: "orders", ID: "a", Previous: 1}, Known: true},
	} {
		m := NewMemory()
		must(t, m.Fold([]Fact{created(1, "orders")}))
		if err := m.Fold([]Fact{fact}); err == nil {
			t.Errorf("%s is folded", name)
		}
	}
}

// TestMemoryBucketsShrink: documents that leave a bucket early, and buckets that become
// empty, keep no memory, however far off their second is.
func TestMemoryBucketsShrink(t *testing.T) {
	m := NewMemory()
	seq := uint64(0)
	fold := func(e schema.Event, ttl schema.TTL, prior Meta) Meta {
		seq++
		e.Seq, e.Time, e.Previous, e.Collection = seq, 1000_000, prior.Version, "c"
		fact := Fact{Event: &e, Known: true, Incarnation: 1, Prior: prior, TTL: ttl}
		must(t, m.Fold([]Fact{fact}))
		now, _ := after(&fact, prior)
		return now
	}
	fold(schema.Event{Type: schema.CollectionCreated, Body: []byte(`{"defaultTtl":-1}`)}, 0, Meta{})
	stays := fold(schema.Event{Type: schema.DocumentCreated, ID: "stays"}, 5, Meta{})
	for n := range 1000 {
		for _, ttl := range []schema.TTL{5, schema.TTL(1000 + n)} {
			d := fold(schema.Event{Type: schema.DocumentCreated, ID: "leaves"}, ttl, Meta{})
			fold(schema.Event{Type: schema.DocumentDeleted, ID: "leaves"}, 0, d)
		}
	}
	w := &m.collections["c"].waiting[ByDeadline]
	if len(w.buckets) != 1 || len(w.buckets[1005].documents) > 4+64+1 || len(w.seconds) > 2+64 {
		t.Errorf("%d buckets, %d seconds and %d places in a bucket are left of one document", len(w.buckets), len(w.seconds), len(w.buckets[1005].documents))
	}
	fold(schema.Event{Type: schema.DocumentDeleted, ID: "stays"}, 0, stays)
	if len(w.buckets) != 0 {
		t.Errorf("%d buckets are left of none", len(w.buckets))
	}
}
