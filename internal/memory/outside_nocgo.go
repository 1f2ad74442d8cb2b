//go:build !cgo

package memory

// outside: Pebble allocates cache and memtables outside of Go's heap.
const outside = false
