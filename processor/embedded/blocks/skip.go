package blocks

import (
	"os"
	"path/filepath"
)

// Skip makes the stream continue after sequence last. It writes a tombstone for last into a
// new file: so NATS remembers sequences that must not be used again. Nothing else in this
// package changes a stream. It syncs the file, and fails rather than write to one that
// exists.
func (s *Stream) Skip(last uint64) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	w := NewWriter(s.Name, s.next)
	w.Skip(last)
	file, err := os.OpenFile(filepath.Join(s.dir, fileName(s.next)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(w.File)
	if syncErr := file.Sync(); err == nil {
		err = syncErr
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}
