package projections

import (
	"hash/maphash"
	"sync"
)

// documentCache holds recently changed documents as they are in Pebble, those that
// ended with Version 0. Documents with a ttl are read and changed while they are
// young, and a lookup here costs a tenth of one in Pebble's memtables.
//
// Only Fold adds documents, so that no reader replaces a new version by an old one,
// and it removes them before they change.
//
// A shard has two generations. When the young one reaches half of the limit, it
// becomes the old one, and the old one is dropped except for documents read since.
// That approximates an LRU list at one map lookup instead of five cache misses. The order
// of a fold: forget, commit, put. Between forget and put, a reader finds the document in
// Pebble alone, where all of the batch appears at once. If a document stayed cached during
// the commit, a reader could combine its old version with another document's new one.
type documentCache struct {
	seed   maphash.Seed
	limit  int64
	shards [cacheShards]cacheShard
}

const cacheShards = 16

type cacheShard struct {
	mu         sync.Mutex
	young, old map[string]Record // by document key
	bytes      [2]int64          // of young and old
	_          [64]byte          // keeps two shards off one cache line
}

// cacheOverhead is about the bytes of an entry besides key and body.
const cacheOverhead = 200

// newDocumentCache returns an empty cache of at most about limit bytes, over all shards.
func newDocumentCache(limit int64) *documentCache {
	c := &documentCache{seed: maphash.MakeSeed(), limit: limit}
	for i := range c.shards {
		c.shards[i].young = make(map[string]Record)
	}
	return c
}

func cost[K string | []byte](key K, r Record) int64 {
	return int64(len(key)+len(r.Body)) + cacheOverhead
}

// get returns a document with its content; its Body is shared: do not change it.
func (c *documentCache) get(key []byte) (Record, bool) {
	r, ok := c.meta(key)
	return r, ok && (r.Version == 0 || r.Body != nil)
}

// meta is get that also returns a touched document whose content is only in Pebble, with
// a nil Body. It takes the lock for writing though it only reads: a document found in the
// old generation moves to the young one, which is what makes the order of eviction that of
// use.
func (c *documentCache) meta(key []byte) (Record, bool) {
	s := &c.shards[maphash.Bytes(c.seed, key)%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.young[string(key)]; ok {
		return r, true
	}
	r, ok := s.old[string(key)]
	if ok {
		s.bytes[1] -= cost(key, r)
		delete(s.old, string(key))
		c.add(s, string(key), r)
	}
	return r, ok
}

// add adds a document, which must be in no generation, to the young one.
func (c *documentCache) add(s *cacheShard, key string, r Record) {
	s.young[key] = r
	if s.bytes[0] += cost(key, r); s.bytes[0] > c.limit/cacheShards/2 {
		s.old, s.young = s.young, make(map[string]Record, len(s.young))
		s.bytes = [2]int64{0, s.bytes[0]}
	}
}

// drop removes a document from the generation that has it; at most one does.
func (s *cacheShard) drop(key string) {
	if r, ok := s.young[key]; ok {
		s.bytes[0] -= cost(key, r)
		delete(s.young, key)
	} else if r, ok := s.old[key]; ok {
		s.bytes[1] -= cost(key, r)
		delete(s.old, key)
	}
}

// evict removes documents before they change.
func (c *documentCache) evict(documents map[string]Record) {
	for key := range documents {
		s := &c.shards[maphash.String(c.seed, key)%cacheShards]
		s.mu.Lock()
		s.drop(key)
		s.mu.Unlock()
	}
}

// put adds documents, removed by forget, as they are now in Pebble. It keeps the bodies.
func (c *documentCache) put(documents map[string]Record) {
	for key, r := range documents {
		s := &c.shards[maphash.String(c.seed, key)%cacheShards]
		s.mu.Lock()
		c.add(s, key, r)
		s.mu.Unlock()
	}
}
