package query

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// conditionsBytes bounds the compiled conditions that a cache holds.
const conditionsBytes = 16 << 20

// Conditions is a cache of compiled conditions, bounded by their estimated memory.
// Engines may share it. A program sends the same few conditions over and over, with
// different params; a compiled one depends on no params. The least recently used ones go
// first.
type Conditions struct {
	mu       sync.Mutex
	compiled *simplelru.LRU[conditionKey, *condition]
	bytes    int
}

// conditionKey has the limits because they are part of the compiled condition.
type conditionKey struct {
	limits Limits
	where  string
}

// NewConditions returns an empty cache of 16 MiB.
func NewConditions() *Conditions {
	c := &Conditions{}
	c.compiled, _ = simplelru.NewLRU(math.MaxInt, func(key conditionKey, dropped *condition) { c.bytes -= dropped.footprint + len(key.where) })
	return c
}

// get returns a compiled condition, nil if the cache does not have it.
func (c *Conditions) get(l Limits, where string) *condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	compiled, _ := c.compiled.Get(conditionKey{l, where})
	return compiled
}

// add adds a compiled condition, and drops those that were not used for the longest time.
func (c *Conditions) add(l Limits, where string, compiled *condition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := conditionKey{l, where}
	c.compiled.Remove(key)
	c.compiled.Add(key, compiled)
	for c.bytes += compiled.footprint + len(where); c.bytes > conditionsBytes; {
		c.compiled.RemoveOldest()
	}
}
