//go:build unix

package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lapsedb/lapse/test/harness"
)

// TestJournal: lines begin with their priority if stderr is the stream that JOURNAL_STREAM
// names, and not if it is redirected.
func TestJournal(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		for _, args := range [][]string{{"serve", "--log-format", "yaml"}, {"serve", "--nats-url", "nats://127.0.0.1:1", "--store-dir", t.TempDir()}} {
			stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
			check(t, err)
			defer stderr.Close()
			info, err := stderr.Stat()
			check(t, err)
			stat := info.Sys().(*syscall.Stat_t)
			inode := stat.Ino
			if !own {
				inode++
			}
			cmd := harness.Command(t, args...)
			cmd.Stderr, cmd.Env = stderr, append(cmd.Environ(), fmt.Sprintf("JOURNAL_STREAM=%d:%d", stat.Dev, inode))
			_ = cmd.Run() // it fails
			text, err := os.ReadFile(stderr.Name())
			if err != nil || len(text) == 0 || strings.HasPrefix(string(text), "<3>") != own {
				t.Errorf("JOURNAL_STREAM is that of stderr: %v: %s prints %q", own, cmd, text)
			}
		}
	}
}
