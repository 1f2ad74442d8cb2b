package projections

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// What is looked up without Pebble is what Pebble has, whether it still fits
// or not, and whether a document lives or has ended.
func TestDocumentCache(t *testing.T) {
	const documents = 100
	l := &logbook{now: 1000}
	l.collection(schema.CollectionCreated, "orders", `{}`)
	for i := range documents {
		l.created("orders", fmt.Sprint(i), fmt.Sprintf(`{"id":"%d"}`, i))
	}
	l.document(schema.DocumentDeleted, "orders", "7", 9, "")
	roomy, tight := open(t), open(t)
	tight.cache = newDocumentCache(5 * cacheOverhead)
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
	if n := roomy.cache.lru.Len(); n != documents {
		t.Errorf("%d of %d documents are kept", n, documents)
	}
	if c := tight.cache; c.bytes > c.limit || c.lru.Len() == 0 {
		t.Errorf("%d documents of %d bytes are kept, the limit is %d", c.lru.Len(), c.bytes, c.limit)
	}
}

// Changing a document over and over counts its bytes once, and no memory of
// the message that it came in is held on to.
func TestDocumentCacheCounts(t *testing.T) {
	c := newDocumentCache(1 << 20)
	message := bytes.Repeat([]byte("x"), 1000)
	for n := range 100 {
		change := map[string]Record{"k": {Meta: Meta{Version: schema.Version(n + 1)}, Body: message[:n]}}
		c.forget(change)
		c.put(change)
	}
	r, ok := c.get([]byte("k"))
	if !ok || r.Version != 100 || c.bytes != 1+99+cacheOverhead {
		t.Errorf("got %+v, %v with %d bytes", r, ok, c.bytes)
	}
	if cap(r.Body) > 200 {
		t.Errorf("a body of %d bytes holds %d", len(r.Body), cap(r.Body))
	}
}
