package embedded_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/processor/embedded"
)

// TestInterrupted: a change that has begun is found until it ends, also in a store directory
// whose name would be a pattern.
func TestInterrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shop[1]")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, change := range []embedded.Change{embedded.Restoring, embedded.Deleting} {
		begun := change.Begin(dir, db)
		found, failed := embedded.Interrupted(dir)
		if begun != nil || failed != nil || len(found) != 1 || !strings.Contains(found[db].Error(), "was interrupted in "+dir) {
			t.Errorf("%s: %v, %v, %v", change, begun, found, failed)
		}
		if err := change.End(dir, db); err != nil {
			t.Fatal(err)
		}
		if found, failed = embedded.Interrupted(dir); len(found) > 0 || failed != nil {
			t.Errorf("%s: %v, %v after its end", change, found, failed)
		}
	}
}
