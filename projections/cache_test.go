package projections

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// TestDocumentCache: reads through the cache return what Pebble has, for live and ended
// documents, whether all fit into the cache or not.
func TestDocumentCache(t *testing.T) {
	const documents = 100
	l := &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{}`)
	for i := range documents {
		l.created("orders", fmt.Sprint(i), fmt.Sprintf(`{"id":"%d"}`, i))
	}
	l.document(schema.DocumentDeleted, "orders", "7", 9, "")
	roomy, tight := open(t), open(t)
	const limit = 50 * cacheOverhead
	tight.cache = newDocumentCache(limit)
	for _, s := range []*Store{roomy, tight} {
		catchUp(t, s, l)
		for i := range documents {
			id := schema.DocumentID(fmt.Sprint(i))
			r, ok, err := s.Document(collection(t, s, "orders"), id)
			want := fmt.Sprintf(`{"id":"%d"}`, i)
			if err != nil || ok == (i == 7) || ok && string(r.Body) != want {
				t.Errorf("%s is %+v, %v, %v", id, r, ok, err)
			}
			m, _, err := s.Meta(collection(t, s, "orders"), id)
			if err != nil || m != r.Meta {
				t.Errorf("%s has %+v, read alone %+v, %v", id, r.Meta, m, err)
			}
		}
	}
	if n, _ := roomy.cache.kept(); n != documents {
		t.Errorf("%d of %d documents are kept", n, documents)
	}
	// A shard may be one document above its share.
	if n, size := tight.cache.kept(); size > limit+cacheShards*2*cacheOverhead || n == 0 || n == documents {
		t.Errorf("%d documents of %d bytes are kept, the limit is %d", n, size, limit)
	}
}

// TestDocumentCacheCounts: repeated changes of a document count its bytes once.
func TestDocumentCacheCounts(t *testing.T) {
	c := newDocumentCache(1 << 20)
	for n := range 100 {
		change := map[string]Record{"k": {Meta: Meta{Version: schema.Version(n + 1)}, Body: make([]byte, n)}}
		c.evict(change)
		c.put(change)
	}
	r, ok := c.get([]byte("k"))
	if n, size := c.kept(); !ok || r.Version != 100 || n != 1 || size != 1+99+cacheOverhead {
		t.Errorf("got %+v, %v of %d with %d bytes", r, ok, n, size)
	}
}

// TestDocumentCacheOwnsItsBodies: a cached body does not retain the memory of the
// message that it came in.
func TestDocumentCacheOwnsItsBodies(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{}`)
	l.created("orders", "a", `{"id":"a"}`+strings.Repeat(" ", 1000))
	message := &l.facts[1].Body
	*message = (*message)[:10]
	catchUp(t, s, l)
	r, ok, err := s.Document(collection(t, s, "orders"), "a")
	if err != nil || !ok || string(r.Body) != `{"id":"a"}` || cap(r.Body) > 200 {
		t.Errorf("a body of %d bytes holds %d: %+v, %v, %v", len(r.Body), cap(r.Body), r.Meta, ok, err)
	}
}

// TestDocumentCacheKeepsReadDocuments: a document that is read stays, one that is not
// is evicted.
func TestDocumentCacheKeepsReadDocuments(t *testing.T) {
	c := newDocumentCache(cacheShards * 10 * cacheOverhead)
	put := func(key string) {
		change := map[string]Record{key: {Meta: Meta{Version: 1}, Body: []byte{}}}
		c.evict(change)
		c.put(change)
	}
	put("asked for")
	put("not asked for")
	for n := range 1000 {
		put(fmt.Sprint(n))
		if _, ok := c.get([]byte("asked for")); !ok {
			t.Fatalf("gone after %d others", n)
		}
	}
	if _, ok := c.get([]byte("not asked for")); ok {
		t.Error("what nobody asked for is still there")
	}
}

// kept returns the number of documents and their bytes, and verifies the byte counters.
func (c *documentCache) kept() (documents int, bytes int64) {
	for i := range c.shards {
		s := &c.shards[i]
		for generation, kept := range []map[string]Record{s.young, s.old} {
			size := int64(0)
			for key, r := range kept {
				size += cost(key, r)
			}
			if size != s.bytes[generation] {
				panic(fmt.Sprintf("counted %d bytes, there are %d", s.bytes[generation], size))
			}
			documents += len(kept)
			bytes += size
		}
	}
	return documents, bytes
}
