package eventlog

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/projections"
)

// Extent is how far a log went.
type Extent struct {
	Seq    uint64 // the last event
	Judged uint64 // the last mutation that was judged by then
}

// extentFile holds the extent of the log by what this process has acknowledged,
// beside the projection. It is written before clients are answered and never
// synced: it survives a kill, and of a power cut may be older, never newer than
// what was in the log then. So files of the log that are shorter have lost
// something.
type extentFile struct {
	fs   vfs.FS
	name string
	file vfs.File
	log  [16]byte // identity
}

// extentBytes are sequence, mutation, identity of the log, and a checksum.
const extentBytes = 8 + 8 + 16 + 8

func extentName(dir string) string { return dir + ".extent" }

// openExtent opens the file for the log of that identity.
func OpenExtent(fs vfs.FS, dir, identity string) (*extentFile, error) {
	e := &extentFile{fs: fs, name: extentName(dir)}
	if _, err := hex.Decode(e.log[:], []byte(identity)); err != nil {
		return nil, fmt.Errorf("identity of the log: %w", err)
	}
	err := fs.MkdirAll(fs.PathDir(e.name), 0o755)
	if err == nil {
		e.file, err = fs.OpenReadWrite(e.name, vfs.WriteCategoryUnspecified)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write beside the projection: %w; choose another --store-dir", err)
	}
	return e, nil
}

// Note notes how far the log goes now. Where the disk takes nothing more, the
// last extent stays.
func (e *extentFile) Note(x Extent) {
	b := make([]byte, 0, extentBytes)
	b = binary.BigEndian.AppendUint64(b, x.Seq)
	b = binary.BigEndian.AppendUint64(b, x.Judged)
	b = append(b, e.log[:]...)
	b = binary.BigEndian.AppendUint64(b, xxhash.Sum64(b))
	_, _ = e.file.WriteAt(b, 0)
}

// Read returns what was noted last of this log; zero if nothing was.
func (e *extentFile) Read() Extent { return readExtent(e.fs, e.name, hex.EncodeToString(e.log[:])) }

// note notes that the log goes as far as cursor.
func (l *Log) Note(cursor projections.Cursor) {
	if l.Extent != nil {
		l.Extent.Note(Extent{cursor.Seq, cursor.Mutations})
	}
}

func (e *extentFile) Close() error { return e.file.Close() }

func readExtent(fs vfs.FS, name, identity string) Extent {
	file, err := fs.Open(name)
	if err != nil {
		return Extent{}
	}
	b := make([]byte, extentBytes)
	_, err = file.ReadAt(b, 0)
	sum := binary.BigEndian.Uint64(b[extentBytes-8:])
	if errors.Join(err, file.Close()) != nil || sum != xxhash.Sum64(b[:extentBytes-8]) || hex.EncodeToString(b[16:32]) != identity {
		return Extent{}
	}
	return Extent{Seq: binary.BigEndian.Uint64(b), Judged: binary.BigEndian.Uint64(b[8:])}
}

// ReadExtent returns how far the log went, by what is beside the projection in
// dir, whose stream listens below prefix; zero if that is not known.
func ReadExtent(dir, prefix string) Extent {
	return readExtent(vfs.Default, extentName(dir), identityOf(prefix))
}
