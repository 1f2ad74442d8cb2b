package projections

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// damage handles corrupt files. Pebble would end the process; since the log has
// everything, it suffices to mark the projection, so that Open refuses it, and to
// report the corruption.
type damage struct {
	fs    vfs.FS
	mark  string
	found chan error
}

// markOf returns the file that marks a projection as unusable.
func markOf(fs vfs.FS, dir string) string { return fs.PathJoin(dir, "DAMAGED") }

// report is called by Pebble, concurrently and repeatedly.
func (d *damage) report(info pebble.DataCorruptionInfo) {
	err := fmt.Errorf("the projection is damaged (%s: %v)", info.Path, info.Details)
	_ = touch(d.fs, d.mark) // without it the next start finds the damage itself
	select {
	case d.found <- err:
	default:
	}
}

// Damaged receives an error when a file of the projection is corrupt. From then on
// reads may fail, and Open refuses the projection.
func (s *Store) Damaged() <-chan error { return s.damage.found }
