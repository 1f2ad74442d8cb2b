package embedded

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
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

// TestLostStage: that a batch cannot be completed is an error, unless it was in memory.
func TestLostStage(t *testing.T) {
	t.Parallel()
	batches := filepath.Join(t.TempDir(), "batches")
	link := filepath.Join(batches, "linked")
	if err := os.Mkdir(batches, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", link); err != nil {
		t.Skip(err)
	}
	for path, level := range map[string]string{link: "WARN", filepath.Join(batches, "gone"): "ERROR"} {
		var lines bytes.Buffer
		l := &logger{to: slog.New(slog.NewTextHandler(&lines, nil))}
		_, err := os.Stat(path)
		l.Errorf("  Failed restoring partial batch write for stream '%s > %s' at sequence %d: %v", "LAPSE", "LAPSE_main", 7, err)
		if logged := lines.String(); !strings.Contains(logged, "level="+level) || strings.Contains(logged, "nothing of it acknowledged") != (level == "WARN") {
			t.Errorf("%s: it says %s", path, logged)
		}
	}
}
