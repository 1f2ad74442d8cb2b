package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lapsedb/lapse/schema"
)

// quarantine hides damaged streams from the server while it serves the others: it would
// truncate them at the damage. Their directories are moved to StoreDir/damaged, and back
// when the server ends or before the next one starts.
//
// A move is a rename on one file system, so a kill leaves a stream in one place or the
// other, whole. of is written before the server starts, and only read afterwards.
type quarantine struct {
	storeDir string
	of       map[schema.DatabaseName]error // the first reason, by database
}

func (q *quarantine) dir() string { return filepath.Join(q.storeDir, "damaged") }

// StreamDirs returns the directories that contain the directories of streams.
func StreamDirs(storeDir string) []string {
	return []string{streamsDir(storeDir), (&quarantine{storeDir: storeDir}).dir()}
}

// streamsDir returns the directory in which the server keeps the streams.
func streamsDir(storeDir string) string {
	return filepath.Join(storeDir, "jetstream", account, "streams")
}

// put moves the stream of a database away for a reason. Both streams of a database may be
// moved; the first reason is reported.
func (q *quarantine) put(stream string, db schema.DatabaseName, why error) error {
	if q.of[db] == nil {
		q.of[db] = why
	}
	err := os.MkdirAll(q.dir(), 0o750)
	if err == nil {
		err = os.Rename(filepath.Join(streamsDir(q.storeDir), stream), filepath.Join(q.dir(), stream))
	}
	if errors.Is(err, fs.ErrPermission) && errors.Is(why, fs.ErrPermission) {
		return nil // the server cannot read it either, and leaves it out
	}
	if err != nil {
		return fmt.Errorf("%w; it cannot be kept from the other databases: %w", why, err)
	}
	return nil
}

// putBack moves all streams back. An error stops a start: streams that NATS does not find
// would be made again, empty.
func (q *quarantine) putBack() error {
	entries, err := os.ReadDir(q.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if err == nil {
			err = os.Rename(filepath.Join(q.dir(), e.Name()), filepath.Join(streamsDir(q.storeDir), e.Name()))
		}
	}
	if err == nil {
		err = os.Remove(q.dir())
	}
	if err != nil {
		return fmt.Errorf("cannot move the streams in %s back: %w; move them to %s", q.dir(), err, streamsDir(q.storeDir))
	}
	return nil
}
