package embedded

import "golang.org/x/sys/unix"

// sharedMemory is where Linux has a file system in memory.
const sharedMemory = "/dev/shm"

// inMemory reports whether a directory is in memory, with room for so many bytes.
func inMemory(dir string, bytes uint64) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && s.Type == unix.TMPFS_MAGIC && s.Bavail*uint64(s.Bsize) >= bytes
}
