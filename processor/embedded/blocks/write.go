package blocks

import (
	"encoding/binary"
	"encoding/hex"
	"time"
)

// Files in the format of a stream: backups consist of them, and a restore makes streams of
// them without a server. What Writer writes, reader reads.

// Message is a message as a stream stores it.
type Message struct {
	Seq          uint64
	Time         int64 // Unix ns
	Subject      string
	Header, Body []byte
}

// Writer builds one file of a stream, in File. The caller keeps it below the size of the
// stream's files, and the sequences ascending.
type Writer struct {
	reader
	File []byte
}

// NewWriter returns a writer of file index.
func NewWriter(stream string, index uint32) *Writer {
	return &Writer{reader: *newReader(stream, index, nil, "")}
}

// Add appends the record of a message. It copies all of it.
func (w *Writer) Add(m Message) {
	start, length := len(w.File), smallestRecord+len(m.Subject)+len(m.Header)+len(m.Body)
	if len(m.Header) > 0 {
		length = length + 4 | headerBit
	}
	w.File = binary.LittleEndian.AppendUint32(w.File, uint32(length))
	w.File = binary.LittleEndian.AppendUint64(w.File, m.Seq)
	w.File = binary.LittleEndian.AppendUint64(w.File, uint64(m.Time))
	w.File = binary.LittleEndian.AppendUint16(w.File, uint16(len(m.Subject)))
	w.File = append(w.File, m.Subject...)
	if len(m.Header) > 0 {
		w.File = binary.LittleEndian.AppendUint32(w.File, uint32(len(m.Header)))
	}
	w.File = append(append(w.File, m.Header...), m.Body...)
	w.hash.Reset()
	for _, part := range [][]byte{w.File[start+4 : start+20], []byte(m.Subject), m.Header, m.Body} {
		_, _ = w.hash.Write(part)
	}
	w.File = w.hash.Sum(w.File)
}

// Skip appends a tombstone, so that the stream continues after sequence last.
func (w *Writer) Skip(last uint64) {
	w.Add(Message{Seq: last | tombstoneBit, Time: time.Now().UnixNano()})
}

// Read visits the sequences of the messages of a file. It reports whether all of buf are sound
// records.
func Read(stream string, index uint32, buf []byte, visit func(seq uint64)) (sound bool) {
	r := newReader(stream, index, buf, "")
	for offset := 0; offset < len(buf); {
		rec, sound := r.recordAt(offset)
		if !sound {
			return false
		}
		if !rec.tomb && !rec.erased {
			visit(rec.seq)
		}
		offset += rec.bytes
	}
	return true
}

// FileName returns the name of file index, in the directory of the messages.
func FileName(index uint32) string { return fileName(index) }

// MetaSum returns what meta.sum says of meta.inf; key is the name of the stream, or
// "STREAM/CONSUMER" for those of a consumer.
func MetaSum(key string, meta []byte) []byte {
	h := newHash(key)
	_, _ = h.Write(meta)
	return []byte(hex.EncodeToString(h.Sum(nil)))
}
