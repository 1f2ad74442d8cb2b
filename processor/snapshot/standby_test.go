package snapshot_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/processor/processortest"
)

// TestStandbyKeepsUp: a standby trims its history with the log, and a new standby begins
// with a snapshot.
func TestStandbyKeepsUp(t *testing.T) {
	processortest.InCrew(t, 2, func(c *processortest.Crew) {
		for _, m := range c.Members {
			m.Options.Retain, m.Options.SnapshotEvery = 20*time.Second, 5*time.Second
		}
		c.Start()
		a, b := c.Members[0], c.Members[1]
		a.Want(201, "collection.create.c", `{"defaultTtl":1000}`)
		for i := range 8 {
			a.Want(201, fmt.Sprintf("document.create.c.d%d", i), `{}`)
			time.Sleep(4 * time.Second)
		}
		first, _, err := a.Inside().Log.Bounds(a.Ctx())
		a.Check(err)
		if first < 2 {
			t.Fatalf("the log begins at %d", first)
		}
		time.Sleep(10 * time.Second)
		if got := b.Inside().Retention.Trimmed(); got < first {
			t.Errorf("the standby keeps history from %d on, and the log begins at %d", got, first)
		}
		if made := b.Inside().Retention.Made.Load(); made != 0 {
			t.Errorf("the standby made %d snapshots", made)
		}
		b.Stop()
		b.Options.Projection.FS = vfs.NewMem()
		b.Start()
		c.Agree()
	})
}
