package blocks

import (
	"fmt"
	"os"
	"syscall"
)

// stampOf returns a stamp that changes when the file does. Besides size and time of
// modification it has inode and time of change, which a program that restores the other
// times, such as cp -p, cannot set.
func stampOf(info os.FileInfo) string {
	stamp := fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano())
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		stamp += fmt.Sprintf(" %d %d.%09d", s.Ino, s.Ctim.Sec, s.Ctim.Nsec)
	}
	return stamp
}
