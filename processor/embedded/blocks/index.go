package blocks

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
)

const (
	indexFile  = "index.db"
	indexMagic = 11
)

// indexed returns the last sequence and the number of messages by index.db; zeros if there
// is no index that can be read, as after a kill. It is a hint only: NATS writes the file
// now and then, so the stream may go further; one that ends before has lost its end. The
// layout, little-endian varints but for the first two bytes:
//
//	magic(1) version(1) messages bytes first firstTime last … checksum(8)
func indexed(dir, stream string) (last, messages uint64) {
	buf, err := os.ReadFile(filepath.Join(dir, indexFile))
	if err != nil || len(buf) < 32 {
		return 0, 0
	}
	buf, sum := buf[:len(buf)-checksumBytes], buf[len(buf)-checksumBytes:]
	h := newHash(stream)
	_, _ = h.Write(buf)
	if !bytes.Equal(h.Sum(nil), sum) || buf[0] != indexMagic {
		return 0, 0
	}
	buf = buf[2:]
	next := func() uint64 {
		v, n := binary.Uvarint(buf)
		if n <= 0 {
			buf = nil
			return 0
		}
		buf = buf[n:]
		return v
	}
	messages = next()
	next() // bytes
	next() // the first sequence
	next() // its time, a signed number of the same length
	return next(), messages
}
