package harness

import (
	"fmt"
	"syscall"
)

func mountMemory(dir string, bytes int) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes))
}

// unmount takes the disk away at once; it ends when the last file on it is closed, which a
// server that has stopped may do a moment later.
func unmount(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }
