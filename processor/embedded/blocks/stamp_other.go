//go:build !linux

package blocks

import (
	"fmt"
	"os"
)

// stampOf changes when a file does.
func stampOf(info os.FileInfo) string {
	return fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano())
}
