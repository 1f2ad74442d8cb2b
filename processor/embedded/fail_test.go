package embedded

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestFailureSaysWhatToDo: the error names the cause and what to do.
func TestFailureSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for cause, advice := range map[error]string{
		syscall.ENOSPC: "free some space",
		syscall.EDQUOT: "free some space",
		syscall.EIO:    "see what is wrong with the disk",
	} {
		s := &Server{failed: make(chan error, 1)}
		s.fail("data", fmt.Sprintf("write data/1.blk: %v", cause))
		if text := (<-s.Failed()).Error(); !strings.Contains(text, cause.Error()) || !strings.HasSuffix(text, ": "+advice+" and start again") {
			t.Errorf("it says %q", text)
		}
	}
}
