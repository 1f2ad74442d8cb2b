package blocks

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"

	"github.com/minio/highwayhash"
)

const (
	recordHeader   = 22
	checksumBytes  = 8
	smallestRecord = recordHeader + checksumBytes
	largestRecord  = 32 << 20

	headerBit    = 1 << 31
	erasedBit    = 1 << 63
	tombstoneBit = 1 << 62
)

// record is one record of a file. Its slices point into the file's buffer.
type record struct {
	bytes        int
	seq          uint64
	erased, tomb bool
	subject      []byte
	header, body []byte
}

// reader reads the records of one file. hash and sum are reused, so reading a record
// allocates nothing.
type reader struct {
	buf    []byte
	hash   hash.Hash64
	sum    [checksumBytes]byte
	events string // subjects of the events, whose headers are well-formed
}

// newHash returns the checksum of NATS: a 64-bit HighwayHash whose key is the SHA-256 of a
// text.
func newHash(key string) hash.Hash64 {
	sum := sha256.Sum256([]byte(key))
	h, err := highwayhash.New64(sum[:])
	if err != nil {
		panic(err) // the key has another length
	}
	return h
}

func newReader(stream string, index uint32, buf []byte, events string) *reader {
	return &reader{buf: buf, hash: newHash(fmt.Sprintf("%s-%d", stream, index)), events: events}
}

// recordAt reads the record at an offset, and reports whether there is a sound one.
func (r *reader) recordAt(offset int) (rec record, sound bool) {
	if len(r.buf)-offset < smallestRecord {
		return rec, false
	}
	length := binary.LittleEndian.Uint32(r.buf[offset:])
	return r.sized(offset, int(length&^headerBit), length&headerBit != 0)
}

// sized is at for a record of length bytes. Every length is compared with what is there
// before it is used: the bytes may be anything.
func (r *reader) sized(offset, length int, hasHeader bool) (rec record, sound bool) {
	rest := r.buf[offset:]
	if length < smallestRecord || length > largestRecord || length > len(rest) {
		return rec, false
	}
	subject := int(binary.LittleEndian.Uint16(rest[20:]))
	content := rest[recordHeader : length-checksumBytes]
	headerLength := 0
	if subject > len(content) || hasHeader && subject+4 > len(content) {
		return rec, false
	}
	rec.bytes = length
	rec.subject, content = content[:subject], content[subject:]
	if hasHeader {
		headerLength = int(binary.LittleEndian.Uint32(content))
		if content = content[4:]; headerLength > len(content) {
			return rec, false
		}
	}
	r.hash.Reset()
	_, _ = r.hash.Write(rest[4:20])
	_, _ = r.hash.Write(rec.subject)
	_, _ = r.hash.Write(content)
	if !bytes.Equal(r.hash.Sum(r.sum[:0]), rest[length-checksumBytes:length]) {
		return rec, false
	}
	rec.header, rec.body = content[:headerLength], content[headerLength:]
	seq := binary.LittleEndian.Uint64(rest[4:])
	rec.seq, rec.erased, rec.tomb = seq&^(erasedBit|tombstoneBit), seq&erasedBit != 0, seq&tombstoneBit != 0
	return rec, !r.isEvent(&rec) || wellFormed(rec.header)
}

func (r *reader) isEvent(rec *record) bool {
	return r.events != "" && bytes.HasPrefix(rec.subject, []byte(r.events))
}

// wellFormed reports whether the length of a header is right, which no checksum covers:
// with a wrong one the body would begin early or late, and the checksum would still match.
func wellFormed(header []byte) bool {
	end := []byte("\r\n\r\n")
	return len(header) == 0 || bytes.Index(header, end) == len(header)-len(end)
}

// next finds the first sound record beyond an offset at which there is none: a tombstone,
// or a message with a sequence beyond last.
func (r *reader) next(offset int, last uint64) (at int, found bool) {
	for at = offset + 1; len(r.buf)-at >= smallestRecord; at++ {
		length := binary.LittleEndian.Uint32(r.buf[at:])
		if n := int(length &^ headerBit); n < smallestRecord || n > len(r.buf)-at {
			continue
		}
		if rec, sound := r.recordAt(at); sound && (rec.tomb || rec.seq > last) {
			return at, true
		}
	}
	return 0, false
}

// sector is the unit that a disk writes completely or not at all.
const sector = 512

// torn reports whether the bytes from offset on, after the last sound record and with none
// after them, can be what a kill or a power cut leaves of a write: the record ends too
// early, or sectors were not written, which read as zeros. Otherwise a complete record is
// there that is not what was written.
func (r *reader) torn(offset int) bool {
	rest := r.buf[offset:]
	if len(rest) < smallestRecord {
		return true
	}
	for at := offset; at < len(r.buf); {
		end := min(at-at%sector+sector, len(r.buf))
		if len(bytes.Trim(r.buf[at:end], "\x00")) == 0 {
			return true
		}
		at = end
	}
	for _, hasHeader := range []bool{false, true} {
		if _, sound := r.sized(offset, len(rest), hasHeader); sound {
			return false // sound but for its length
		}
	}
	length := binary.LittleEndian.Uint32(rest) &^ headerBit
	return length > uint32(len(rest)) && length <= largestRecord
}
