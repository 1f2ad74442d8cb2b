//go:build !cgo || !linux

package memory

// OneArena does nothing: all is in Go's heap, or C's allocator is not glibc's.
func OneArena() {}

func trim() {}
