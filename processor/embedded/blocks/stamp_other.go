//go:build !linux

package blocks

import (
	"fmt"
	"os"
)

// stampOf returns a stamp that changes when the file does.
func stampOf(info os.FileInfo) string {
	return fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano())
}
