package projections

import (
	"bytes"
	"math"
	"sync"
	"unsafe"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// documentCache holds documents that were changed lately, as they are in
// Pebble or, with Version 0, as ended. Documents with a time to live are read
// and changed while they are young, and a lookup here costs a tenth of one
// through Pebble's memtables.
//
// Only folding puts documents in, so that a reader cannot put an old one over
// a new one, and it takes them out before they change.
type documentCache struct {
	mu    sync.Mutex
	lru   *simplelru.LRU[string, Record] // by document key
	bytes int64
	limit int64
}

// cacheOverhead is about what an entry costs besides key and body.
const cacheOverhead = 200

func newDocumentCache(limit int64) *documentCache {
	c := &documentCache{limit: limit}
	// The error is for a size below 1; the bound is on bytes, not on entries.
	c.lru, _ = simplelru.NewLRU(math.MaxInt, func(key string, r Record) { c.bytes -= cost(key, r) })
	return c
}

func cost(key string, r Record) int64 { return int64(len(key)+len(r.Body)) + cacheOverhead }

// get returns a document; its Body is shared and must not be changed.
func (c *documentCache) get(key []byte) (Record, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.Get(unsafe.String(unsafe.SliceData(key), len(key))) // which keeps the keys it has, not this one
}

// forget drops documents that are about to change.
func (c *documentCache) forget(documents map[string]Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range documents {
		c.lru.Remove(key)
	}
}

// put keeps documents, forgotten before, as they are now in Pebble. It copies
// the bodies, which may be small parts of something large.
func (c *documentCache) put(documents map[string]Record) {
	for key, r := range documents {
		r.Body = bytes.Clone(r.Body)
		c.mu.Lock()
		c.lru.Add(key, r)
		for c.bytes += cost(key, r); c.bytes > c.limit; {
			c.lru.RemoveOldest()
		}
		c.mu.Unlock()
	}
}
