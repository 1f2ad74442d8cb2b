package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lapsedb/lapse/schema"
)

// aside hides damaged streams from the server while it serves the others: it would
// truncate them at the damage. Their directories are moved to StoreDir/damaged, and back
// when the server ends or before the next one starts.
type aside struct {
	storeDir string
	of       map[schema.DatabaseName]error // the first reason, by database
}

func (a *aside) dir() string { return filepath.Join(a.storeDir, "damaged") }

// StreamDirs returns the directories that contain the directories of streams.
func StreamDirs(storeDir string) []string {
	return []string{streamsDir(storeDir), (&aside{storeDir: storeDir}).dir()}
}

// streamsDir returns the directory in which the server keeps the streams.
func streamsDir(storeDir string) string {
	return filepath.Join(storeDir, "jetstream", account, "streams")
}

// put moves the stream of a database away for a reason.
func (a *aside) put(stream string, db schema.DatabaseName, why error) error {
	if a.of[db] == nil {
		a.of[db] = why
	}
	err := os.MkdirAll(a.dir(), 0o750)
	if err == nil {
		err = os.Rename(filepath.Join(streamsDir(a.storeDir), stream), filepath.Join(a.dir(), stream))
	}
	if errors.Is(err, fs.ErrPermission) && errors.Is(why, fs.ErrPermission) {
		return nil // the server cannot read it either, and leaves it out
	}
	if err != nil {
		return fmt.Errorf("%w; it cannot be kept from the other databases: %w", why, err)
	}
	return nil
}

// putBack moves all streams back.
func (a *aside) putBack() error {
	entries, err := os.ReadDir(a.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if err == nil {
			err = os.Rename(filepath.Join(a.dir(), e.Name()), filepath.Join(streamsDir(a.storeDir), e.Name()))
		}
	}
	if err == nil {
		err = os.Remove(a.dir())
	}
	if err != nil {
		return fmt.Errorf("cannot move the streams in %s back: %w; move them to %s", a.dir(), err, streamsDir(a.storeDir))
	}
	return nil
}
