package embedded

import (
	"os"

	"golang.org/x/sys/unix"
)

// sharedMemory is where Linux has a file system in memory.
const sharedMemory = "/dev/shm"

// inMemory reports whether a directory is in memory, with room for so many bytes.
func inMemory(dir string, bytes uint64) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && s.Type == unix.TMPFS_MAGIC && s.Bavail*uint64(s.Bsize) >= bytes
}

// lockDir locks a directory until the returned file is closed. It returns nil if there is
// no such directory, or another process has its lock.
func lockDir(path string) *os.File {
	dir, err := os.Open(path)
	if err != nil {
		return nil
	}
	if unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		locked, err := dir.Stat()
		now, err2 := os.Lstat(path) // it may have been removed before it was locked
		if err == nil && err2 == nil && os.SameFile(locked, now) {
			return dir
		}
	}
	_ = dir.Close()
	return nil
}
