package projections

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// TestDocumentCache is about its cost, since reads return the same without it: what is read
// stays, what is not is evicted, a document counts once, and the limit holds.
func TestDocumentCache(t *testing.T) {
	const limit = cacheShards * 10 * cacheOverhead
	c := newDocumentCache(limit)
	put := func(key string, version int) {
		change := map[string]Record{key: {Meta: Meta{Version: schema.Version(version)}, Body: make([]byte, version)}}
		c.evict(change)
		c.put(change)
	}
	for version := range 100 {
		put("read", version+1)
	}
	if n, size := c.kept(); n != 1 || size != 4+100+cacheOverhead {
		t.Errorf("one document counts as %d with %d bytes", n, size)
	}
	put("unread", 1)
	for n := range 1000 {
		put(fmt.Sprint(n), 1)
		if r, ok := c.get([]byte("read")); !ok || r.Version != 100 {
			t.Fatalf("after %d others it is %+v, %t", n, r.Meta, ok)
		}
	}
	if _, ok := c.get([]byte("unread")); ok {
		t.Error("what nobody asked for is still there")
	}
	// A shard may be one document above its share.
	if n, size := c.kept(); size > limit+cacheShards*2*cacheOverhead || n < 16 || n > 900 {
		t.Errorf("%d documents of %d bytes are kept, the limit is %d", n, size, limit)
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
