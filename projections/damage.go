package projections

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// damage is what becomes of bytes on disk that are not what was written.
// Pebble would end the process; but the log has everything, so it is enough to
// mark the projection, for Open to refuse it, and to tell.
type damage struct {
	fs    vfs.FS
	mark  string
	found chan error
}

// markOf is the file in a projection's directory that says not to use it.
func markOf(fs vfs.FS, dir string) string { return fs.PathJoin(dir, "DAMAGED") }

// report is called by Pebble, possibly often and at once.
func (d *damage) report(info pebble.DataCorruptionInfo) {
	err := fmt.Errorf("the projection is damaged (%s: %v)", info.Path, info.Details)
	_ = touch(d.fs, d.mark) // without it the next start finds the damage itself
	select {
	case d.found <- err:
	default:
	}
}

// Damaged is sent an error when a file of the projection is not what was
// written: reads may fail from then on, and Open refuses it.
func (s *Store) Damaged() <-chan error { return s.damage.found }
