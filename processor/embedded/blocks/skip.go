package blocks

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Skip makes the stream continue after sequence last. It writes a tombstone for last
// into a new file: so NATS remembers sequences that must not be used again. Nothing else
// in this package changes a stream.
func (s *Stream) Skip(last uint64) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	b := make([]byte, recordHeader, smallestRecord)
	binary.LittleEndian.PutUint32(b, smallestRecord)
	binary.LittleEndian.PutUint64(b[4:], last|tombstoneBit)
	binary.LittleEndian.PutUint64(b[12:], uint64(time.Now().UnixNano()))
	h := newHash(fmt.Sprintf("%s-%d", s.Name, s.next))
	_, _ = h.Write(b[4:20])
	b = h.Sum(b)
	file, err := os.OpenFile(filepath.Join(s.dir, fileName(s.next)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(b)
	if syncErr := file.Sync(); err == nil {
		err = syncErr
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}
