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

// disk is the file system of the projection. It writes nothing after the first
// write that fails because the disk is full or broken: the files are then as after
// a crash, the state at some cursor.
//
// Pebble's own means do not suffice. It retries a failed flush without end, while
// Fold waits for a free memtable, and Close for the flush; a failed manifest is
// fatal to the process; vfs.OnDiskFull retries once and returns the same error. So
// Pebble does not see the failure: disk keeps later files in memory until the
// projection is closed.
type disk struct {
	vfs.FS
	dir    string
	memory *vfs.MemFS

	mu     sync.Mutex
	err    error         // the first failure
	failed chan struct{} // closed when err is set
}

func newDisk(fs vfs.FS, dir string) *disk {
	return &disk{FS: fs, dir: dir, memory: vfs.NewMem(), failed: make(chan struct{})}
}

// diskFault is an error of a full or broken disk, with advice for the operator.
type diskFault struct {
	err    error
	advice string
}

var diskFaults = []diskFault{
	{syscall.ENOSPC, "free some space and start again"},
	{syscall.EDQUOT, "free some space and start again"},
	{syscall.EROFS, "make it writable and start again"},
	{syscall.EIO, "see what is wrong with the disk and start again"},
}

// diskFaultOf returns the fault that err means, the zero value for none.
func diskFaultOf(err error) diskFault {
	for _, f := range diskFaults {
		if errors.Is(err, f.err) {
			return f
		}
	}
	return diskFault{}
}

// DiskAdvice returns advice for the operator if err means a full or broken disk, ""
// otherwise.
func DiskAdvice(err error) string { return diskFaultOf(err).advice }

// OfDisk reports whether err means a full or broken disk, not damaged content.
func OfDisk(err error) bool { return DiskAdvice(err) != "" }

// vital reports whether Pebble cannot continue without a file: any file but a table,
// which it writes again.
func vital(name string) bool { return !strings.HasSuffix(name, ".sst") }

// ends reports whether err, returned by a write, makes the disk unusable: any error
// does for a vital file. It records the failure.
func (d *disk) ends(err error, vital bool) bool {
	if f := diskFaultOf(err); f.err != nil {
		d.fail(fmt.Errorf("%w: %s", f.err, f.advice))
		return true
	}
	if err != nil && vital {
		d.fail(err)
		return true
	}
	return false
}

// fail records the first failure.
func (d *disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = fmt.Errorf("projection in %s: %w", d.dir, err)
		_ = d.memory.MkdirAll(d.dir, 0o700) // cannot fail: it is in memory
		close(d.failed)
	}
}

// failure returns the first failure, nil if there was none.
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

// open opens the database. A failure of the disk during the call wins over Pebble's
// result: Pebble may report success for files that are only in memory.
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

// close flushes and closes the database. Without a write-ahead log, what is not flushed is
// lost: the next start would fold it again.
func (d *disk) close(db *pebble.DB) error {
	err := errors.Join(db.Flush(), db.Close())
	if failure := d.failure(); failure != nil {
		return failure
	}
	return err
}

// Failed is closed when the disk is full or broken. From then on Fold fails, nothing
// is written, and reads go on.
func (s *Store) Failed() <-chan struct{} { return s.disk.failed }

// Failure returns why the disk failed, in one line with advice for the operator; nil
// before.
func (s *Store) Failure() error { return s.disk.failure() }

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

// ErrDamaged means that files of a projection are corrupt. Open refuses it from then on:
// remove it and fold the log again.
var ErrDamaged = errors.New("the projection is damaged")

// OfDamage reports whether the error of a read is due to a corrupt file.
func OfDamage(err error) bool { return pebble.IsCorruptionError(err) }

// report is called by Pebble, concurrently and repeatedly. It must not wait: Pebble calls
// it from reads and compactions. So it keeps only the first error if nobody receives from
// Damaged.
func (d *damage) report(info pebble.DataCorruptionInfo) {
	err := fmt.Errorf("%w (file %s)", ErrDamaged, info.Path)
	_ = touch(d.fs, d.mark) // without it the next start finds the damage itself
	select {
	case d.found <- err:
	default:
	}
}

// Damaged receives an error when a file of the projection is corrupt. From then on
// reads may fail, and Open refuses the projection.
func (s *Store) Damaged() <-chan error { return s.damage.found }

// Health describes Pebble and its disk.
type Health struct {
	Bytes                  uint64 // of Pebble's files
	Available, Total       uint64 // bytes of the disk that holds the files; 0 if unknown
	L0Sublevels            int64  // overlapping runs of level 0, which a lookup reads
	CacheHits, CacheMisses int64
	CacheBytes             int64 // in the block cache, which other stores may share
	MemTableBytes          int64
	Flushes                int64
}

// Health returns the state of Pebble and its disk in well under a millisecond. Do not
// call it after Close.
func (s *Store) Health() Health {
	m := s.db.Metrics()
	h := Health{
		CacheBytes:    m.BlockCache.Size,
		MemTableBytes: int64(m.MemTable.Size + m.MemTable.ZombieSize),
		Bytes:         m.DiskSpaceUsage(),
		L0Sublevels:   int64(m.Levels[0].Sublevels),
		CacheHits:     m.BlockCache.Hits,
		CacheMisses:   m.BlockCache.Misses,
		Flushes:       m.Flush.Count,
	}
	if usage, err := s.disk.FS.GetDiskUsage(s.disk.dir); err == nil {
		h.Available, h.Total = usage.AvailBytes, usage.TotalBytes
	}
	return h
}
