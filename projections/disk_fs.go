package projections

import (
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The file system that Pebble uses: that of the machine until a write fails, and memory
// afterwards. What Pebble sees after the failure:
//
//   - a new file is in memory, and so are its reads, renames and removal
//   - an older file can be read from the disk
//   - a write to an older table fails, so that Pebble writes that table again, in memory
//   - a write to an older manifest or other vital file seems to succeed: its error would
//     make Pebble end the process
//   - a removal or rename of an older file seems to succeed and does nothing
//
// Thus the disk keeps the files that it had, and reads of the running process go on.

// Unwrap implements vfs.FS.
func (d *disk) Unwrap() vfs.FS { return d.FS }

// Create implements vfs.FS.
func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if d.failure() == nil {
		file, err := d.FS.Create(name, c)
		if err == nil {
			return &writtenFile{File: file, disk: d, name: name}, nil
		}
		if !d.ends(err, vital(name)) {
			return nil, err
		}
	}
	return d.memory.Create(name, c)
}

// inMemory reports whether a file was created after the disk failed.
func (d *disk) inMemory(name string) bool {
	if d.failure() == nil {
		return false
	}
	_, err := d.memory.Stat(name)
	return err == nil
}

// Open implements vfs.FS.
func (d *disk) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	if d.inMemory(name) {
		return d.memory.Open(name, o...)
	}
	return d.FS.Open(name, o...)
}

// Stat implements vfs.FS.
func (d *disk) Stat(name string) (vfs.FileInfo, error) {
	if d.inMemory(name) {
		return d.memory.Stat(name)
	}
	return d.FS.Stat(name)
}

// OpenDir implements vfs.FS.
func (d *disk) OpenDir(name string) (vfs.File, error) {
	file, err := d.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &writtenFile{File: file, disk: d, name: name}, nil // Pebble panics if it cannot sync one
}

// Rename implements vfs.FS.
func (d *disk) Rename(from, to string) error {
	if d.inMemory(from) {
		return d.memory.Rename(from, to)
	}
	return d.change(func() error { return d.FS.Rename(from, to) })
}

// Remove implements vfs.FS.
func (d *disk) Remove(name string) error {
	if d.inMemory(name) {
		return d.memory.Remove(name)
	}
	return d.change(func() error { return d.FS.Remove(name) })
}

// MkdirAll implements vfs.FS.
func (d *disk) MkdirAll(name string, mode fs.FileMode) error {
	return d.change(func() error { return d.FS.MkdirAll(name, mode) })
}

// change changes a directory. After the disk failed it leaves the directory as it is
// and reports success.
func (d *disk) change(change func() error) error {
	if d.failure() != nil {
		return nil
	}
	if err := change(); err != nil && !d.ends(err, false) {
		return err
	}
	return nil
}

// Link implements vfs.FS.
func (d *disk) Link(from, to string) error {
	err := d.failure()
	if err == nil {
		err = d.FS.Link(from, to)
		d.ends(err, false)
	}
	return err
}

// writtenFile is a file or directory that was opened before the disk failed. After
// the failure a table reports the error, and a vital file success: its content no
// longer matters.
type writtenFile struct {
	vfs.File
	disk *disk
	name string
}

// result returns the error that Pebble sees when a write returns err. The two calls of
// vital differ in purpose: the first decides whether any error ends the disk, the second
// whether Pebble may learn of it.
func (f *writtenFile) result(err error) error {
	if err != nil && f.disk.ends(err, vital(f.name)) && vital(f.name) {
		return nil
	}
	return err
}

// Write implements vfs.File.
func (f *writtenFile) Write(p []byte) (n int, err error) {
	if err = f.disk.failure(); err == nil {
		n, err = f.File.Write(p)
	}
	if err != nil && f.result(err) == nil {
		return len(p), nil
	}
	return n, err
}

// Sync implements vfs.File.
func (f *writtenFile) Sync() error { return f.sync(f.File.Sync) }

// SyncData implements vfs.File.
func (f *writtenFile) SyncData() error { return f.sync(f.File.SyncData) }

// SyncTo implements vfs.File.
func (f *writtenFile) SyncTo(length int64) (full bool, err error) {
	err = f.sync(func() error { full, err = f.File.SyncTo(length); return err })
	return full, err
}

func (f *writtenFile) sync(sync func() error) error {
	err := f.disk.failure()
	if err == nil {
		err = sync()
	}
	return f.result(err)
}
