package eventlog

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/projections"
)

// extentFile keeps the acknowledged extent of the log, beside the projection. It is written
// before clients get their replies, and never synced: after a kill it is exact, after a
// power cut it may be older. It is never newer than the log was, so a log that is shorter
// has lost events. The layout, 40 bytes, big endian:
//
//	sequence(8) mutation(8) identity of the log(16) xxhash64 of the rest(8)
type extentFile struct {
	fs   vfs.FS
	name string
	file vfs.File
	log  [16]byte // identity
}

// extentBytes is the size of sequence, mutation, identity of the log and checksum.
const extentBytes = 8 + 8 + 16 + 8

func extentName(dir string) string { return dir + ".extent" }

// OpenExtent opens or creates the file beside dir for the log of that identity.
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
		return nil, fmt.Errorf("cannot write beside the projection: %w: %s", err, cmp.Or(projections.DiskAdvice(err), "choose another --store-dir"))
	}
	return e, nil
}

// Note writes the extent, in one write. On a full disk the last one stays. It costs a
// system call for each acknowledgement, and no sync.
func (e *extentFile) Note(x Extent) {
	b := make([]byte, 0, extentBytes)
	b = binary.BigEndian.AppendUint64(b, x.Seq)
	b = binary.BigEndian.AppendUint64(b, x.Judged)
	b = append(b, e.log[:]...)
	b = binary.BigEndian.AppendUint64(b, xxhash.Sum64(b))
	_, _ = e.file.WriteAt(b, 0)
}

// Read returns the last extent of this log; zero if there is none.
func (e *extentFile) Read() Extent { return readExtent(e.fs, e.name, hex.EncodeToString(e.log[:])) }

// Note writes the extent at cursor, if the log has an extent file.
func (l *Log) Note(cursor projections.Cursor) {
	if l.Extent != nil {
		l.Extent.Note(Extent{Seq: cursor.Seq, Judged: cursor.Mutations})
	}
}

func (e *extentFile) Close() error { return e.file.Close() }

// readExtent returns the zero Extent for a file that is missing, torn, or of another log:
// no knowledge is no reason to refuse a start.
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
	return Extent{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), byAcknowledged}
}

// ReadExtent returns the extent kept beside the projection in dir, of the log whose
// stream has the subjects below prefix; zero if there is none.
func ReadExtent(dir, prefix string) Extent {
	return readExtent(vfs.Default, extentName(dir), identityOf(prefix))
}
