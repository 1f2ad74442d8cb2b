package projections

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/klauspost/compress/zstd"
)

// A snapshot of the projection: Checkpoint makes a directory, WriteArchive makes it a
// stream of bytes, ReadArchive restores it. The format is a tar within Zstandard, of plain
// files without directories:
//
//	MANIFEST-000012, OPTIONS-000013, 000010.sst, …, marker.manifest.000003.MANIFEST-000012
//
// A reader checks Zstandard's sum; the documents' own hashes are for Verify.

// Checkpoint copies the projection to dir, which must not exist, as of some time
// during the call. It hard-links files where the file system can. The copy opens as
// a projection.
func (s *Store) Checkpoint(dir string) error {
	// A checkpoint has no memtables, and there is no write-ahead log.
	if err := s.db.Flush(); err != nil {
		return err
	}
	if err := s.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return err
	}
	return s.Failure() // the copy lacks later files
}

// WriteArchive writes the files in dir, a checkpoint or a projection that is
// not open, to w: a tar compressed by Zstandard, which has a checksum.
func WriteArchive(w io.Writer, fs vfs.FS, dir string) error {
	compressed, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(true), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := writeFile(archive, fs, fs.PathJoin(dir, name), name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

// writeFile adds one file to the archive; it skips directories.
func writeFile(archive *tar.Writer, fs vfs.FS, path, name string) error {
	info, err := fs.Stat(path)
	if err != nil || info.IsDir() {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: name, Size: info.Size(), Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	file, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	_, err = io.CopyN(archive, file, info.Size())
	return errors.Join(err, file.Close())
}

// maxArchiveWindow bounds the memory for reading an archive, whatever its header says.
const maxArchiveWindow = 64 << 20

// ReadArchive replaces dir by the archive that WriteArchive wrote. It reads r to its
// end. Open refuses dir until ReadArchive has succeeded. The mark that Open refuses is
// written first and removed last. So a process that dies halfway leaves a directory that
// is not mistaken for a projection.
func ReadArchive(r io.Reader, fs vfs.FS, dir string) (err error) {
	expanded, err := zstd.NewReader(r, zstd.WithDecoderMaxWindow(maxArchiveWindow), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer expanded.Close()
	if err := errors.Join(fs.RemoveAll(dir), fs.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	mark := markOf(fs, dir)
	if err := touch(fs, mark); err != nil {
		return err
	}
	archive := tar.NewReader(expanded)
	for files := 0; ; files++ {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) && files > 0 {
			break
		}
		if err != nil {
			return fmt.Errorf("the archive ends too early, or is none: %w", err)
		}
		// Write no file outside dir.
		if header.Typeflag != tar.TypeReg || strings.ContainsAny(header.Name, `/\`) || fs.PathBase(header.Name) != header.Name || strings.Trim(header.Name, ".") == "" {
			return fmt.Errorf("%q is not a file of a projection", header.Name)
		}
		if err := readFile(archive, fs, fs.PathJoin(dir, header.Name)); err != nil {
			return err
		}
	}
	// Read the end of the archive: without it, it is truncated.
	if _, err := io.Copy(io.Discard, expanded); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	if err := fs.Remove(mark); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

// readFile writes one file and syncs it: the mark must not go before the content is on
// disk.
func readFile(r io.Reader, fs vfs.FS, path string) error {
	file, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, r)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func touch(fs vfs.FS, path string) error {
	file, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	return file.Close()
}

// syncDir makes the names in a directory durable, the removal of the mark among them.
func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
