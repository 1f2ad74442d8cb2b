//go:build cgo && linux

package memory

// #include <malloc.h>
// static void one_arena(void) {
// #ifdef __GLIBC__
// 	mallopt(M_ARENA_MAX, 1);
// 	mallopt(M_MMAP_THRESHOLD, 256 << 10);
// 	mallopt(M_TRIM_THRESHOLD, 16 << 20);
// #endif
// }
// static void trim(void) {
// #ifdef __GLIBC__
// 	malloc_trim(0);
// #endif
// }
import "C"

// OneArena keeps C's allocator from holding several times what it has allocated. In a build
// with cgo Pebble's cache and memtables are there; glibc has eight arenas for each core,
// and what is free in one serves no other. Large allocations are mapped one by one, so that
// a memtable that is freed goes back to the system.
func OneArena() { C.one_arena() }

// trim returns what C's allocator holds and has not allocated.
func trim() { C.trim() }
