package projections

import (
	"bytes"
	"hash/maphash"
	"sync"
)

// documentCache holds documents that were changed lately, as they are in
// Pebble or, with Version 0, as ended. Documents with a time to live are read
// and changed while they are young, and a lookup here costs a tenth of one
// through Pebble's memtables.
//
// Only folding puts documents in, so that a reader cannot put an old one over
// a new one, and it takes them out before they change.
//
// A shard has two generations. When the young one has half of the bytes that
// there may be, it is the old one, and what was the old one goes, but for what
// was asked for meanwhile. That keeps what a list in the order of use would
// keep, more or less, and costs one look at a map where the list costs five
// places in memory.
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
	_          [64]byte          // so that two shards are not in one cache line
}

// cacheOverhead is about what an entry costs besides key and body.
const cacheOverhead = 200

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

// get returns a document; its Body is shared and must not be changed.
func (c *documentCache) get(key []byte) (Record, bool) {
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

// add puts a document, which is in no generation, into the young one.
func (c *documentCache) add(s *cacheShard, key string, r Record) {
	s.young[key] = r
	if s.bytes[0] += cost(key, r); s.bytes[0] > c.limit/cacheShards/2 {
		s.old, s.young = s.young, make(map[string]Record, len(s.young))
		s.bytes = [2]int64{0, s.bytes[0]}
	}
}

// drop takes a document out.
func (s *cacheShard) drop(key string) {
	if r, ok := s.young[key]; ok {
		s.bytes[0] -= cost(key, r)
		delete(s.young, key)
	} else if r, ok := s.old[key]; ok {
		s.bytes[1] -= cost(key, r)
		delete(s.old, key)
	}
}

// forget drops documents that are about to change.
func (c *documentCache) forget(documents map[string]Record) {
	for key := range documents {
		s := &c.shards[maphash.String(c.seed, key)%cacheShards]
		s.mu.Lock()
		s.drop(key)
		s.mu.Unlock()
	}
}

// put keeps documents, forgotten before, as they are now in Pebble. It copies
// the bodies, which may be small parts of something large.
func (c *documentCache) put(documents map[string]Record) {
	for key, r := range documents {
		r.Body = bytes.Clone(r.Body)
		s := &c.shards[maphash.String(c.seed, key)%cacheShards]
		s.mu.Lock()
		c.add(s, key, r)
		s.mu.Unlock()
	}
}
