package projections

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is where the projection is kept. The first write that fails for want of
// a sound disk is the last one: what is there then is what a crash would leave,
// which is the state at some cursor, and nothing is written behind what is
// missing. Pebble does not get to know: it would try without end, have the one
// who folds wait meanwhile, and end the process if what failed was its manifest.
// What it writes from then on is in memory, for the moment that it takes to
// notice and to close the projection.
type disk struct {
	vfs.FS
	dir    string
	memory *vfs.MemFS

	mu     sync.Mutex
	err    error         // why nothing is written any more
	failed chan struct{} // closed with err
}

func newDisk(fs vfs.FS, dir string) *disk {
	return &disk{FS: fs, dir: dir, memory: vfs.NewMem(), failed: make(chan struct{})}
}

// diskErrors are those that are about the disk, with what to do then.
var diskErrors = []struct {
	err    error
	advice string
}{
	{syscall.ENOSPC, "free some space and start again"},
	{syscall.EDQUOT, "free some space and start again"},
	{syscall.EROFS, "make it writable and start again"},
	{syscall.EIO, "see what is wrong with the disk and start again"},
}

// OfDisk tells whether err is about the disk, not about what is on it.
func OfDisk(err error) bool {
	for _, e := range diskErrors {
		if errors.Is(err, e.err) {
			return true
		}
	}
	return false
}

// vital tells whether Pebble cannot go on without a file: all but tables, which
// it makes again.
func vital(name string) bool { return !strings.HasSuffix(name, ".sst") }

// ends tells whether err, from writing, is the end of the disk; any is where
// vital says that Pebble cannot live with one.
func (d *disk) ends(err error, vital bool) bool {
	for _, e := range diskErrors {
		if errors.Is(err, e.err) {
			d.fail(fmt.Errorf("%w: %s", e.err, e.advice))
			return true
		}
	}
	if err != nil && vital {
		d.fail(err)
		return true
	}
	return false
}

// fail keeps the first failure.
func (d *disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = fmt.Errorf("projection in %s: %w", d.dir, err)
		_ = d.memory.MkdirAll(d.dir, 0o700) // it is memory
		close(d.failed)
	}
}

// failure is why nothing is written any more, nil if all is well.
func (d *disk) failure() error {
	select {
	case <-d.failed:
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.err
	default:
		return nil
	}
}

// open opens the database.
func (d *disk) open(o *pebble.Options) (*pebble.DB, error) {
	db, err := pebble.Open(d.dir, o)
	if failure := d.failure(); failure != nil {
		if err == nil {
			_ = db.Close()
		}
		return nil, failure
	}
	if err != nil {
		return nil, fmt.Errorf("projection in %s: %w", d.dir, err)
	}
	return db, nil
}

// close flushes and closes the database.
func (d *disk) close(db *pebble.DB) error {
	err := errors.Join(db.Flush(), db.Close())
	if failure := d.failure(); failure != nil {
		return failure
	}
	return err
}

// Failed is closed when the disk does not take what is written. Nothing is
// folded from then on, and nothing more is kept; reads go on.
func (s *Store) Failed() <-chan struct{} { return s.disk.failed }

// Failure says why, in a line that says what to do; nil while all is well.
func (s *Store) Failure() error { return s.disk.failure() }
