//go:build unix

package host

import (
	"fmt"
	"os"
	"syscall"
)

// identityOf identifies a directory until the machine reboots; a copy of it has another
// identity: boot, device and inode. It is "" if that is unknown.
func identityOf(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s/%d/%d", bootID(), stat.Dev, stat.Ino)
}
