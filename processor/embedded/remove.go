package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lapsedb/lapse/schema"
)

// restore and database delete change all of a database in a store directory, in several
// steps that no transaction joins. A file marks the time in between:
//
//	Begin: restoring-main is made, and its directory synced
//	… streams and projection are removed, made, filled …
//	End:   restoring-main is removed
//
// A start that finds the file does not serve the database; the same command run again
// finishes it. Without the sync before the first change, a power cut could keep the change
// and lose the mark.

// RemoveStreams removes the streams of a database, also those that are damaged, from a
// store directory that the caller has locked, and returns their names. The names of streams
// show what belongs to a database (DatabaseName.Owns): log, mutations, lease, snapshots.
func RemoveStreams(storeDir string, db schema.DatabaseName) (names []string, err error) {
	if err := (&quarantine{storeDir: storeDir}).putBack(); err != nil {
		return nil, err
	}
	dir := streamsDir(storeDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if db.Owns(e.Name()) {
			names = append(names, e.Name())
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return names, err
			}
		}
	}
	return names, nil
}

// Change is a command that changes all of a database in a store directory. A file in it says
// that the command has begun. lapse refuses the database until it has ended.
type Change string

const (
	Restoring Change = "restoring"
	Deleting  Change = "deleting"
)

func (c Change) file(storeDir string, db schema.DatabaseName) string {
	return filepath.Join(storeDir, string(c)+"-"+string(db))
}

// Begin notes that the command begins.
func (c Change) Begin(storeDir string, db schema.DatabaseName) error {
	f, err := os.OpenFile(c.file(storeDir, db), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	dir, err := os.Open(storeDir)
	if err == nil {
		err = cmp.Or(dir.Sync(), dir.Close()) // before anything goes
	}
	return cmp.Or(err, f.Close())
}

// End notes that the command has ended.
func (c Change) End(storeDir string, db schema.DatabaseName) error {
	return os.Remove(c.file(storeDir, db))
}

// Begun reports whether the command has begun and not ended.
func (c Change) Begun(storeDir string, db schema.DatabaseName) bool {
	_, err := os.Stat(c.file(storeDir, db))
	return err == nil
}

// Interrupted returns an error for each database of which a restore or deletion was interrupted.
func Interrupted(storeDir string) (map[schema.DatabaseName]error, error) {
	found := make(map[schema.DatabaseName]error)
	for change, command := range map[Change]string{Restoring: "restore", Deleting: "database delete"} {
		files, err := fs.Glob(os.DirFS(storeDir), string(change)+"-*") // storeDir is no pattern
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			db := schema.DatabaseName(strings.TrimPrefix(file, string(change)+"-"))
			found[db] = fmt.Errorf("database %s: `lapse %s` was interrupted in %s: run it again", db, command, storeDir)
		}
	}
	return found, nil
}

// checkChanges refuses a database of which a restore or deletion was interrupted. With
// others, these start, and the server does not open its streams: they go into quarantine.
// Changing is the database that the present command changes.
func (o *Options) checkChanges(quarantine *quarantine) error {
	interrupted, err := Interrupted(o.StoreDir)
	if err != nil || len(interrupted) == 0 {
		return err
	}
	delete(interrupted, o.Changing)
	entries, err := os.ReadDir(streamsDir(o.StoreDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, db := range o.Databases {
		if quarantine.of[db] = interrupted[db]; interrupted[db] != nil && len(o.Databases) == 1 {
			return interrupted[db]
		}
	}
	for _, e := range entries {
		if db, ok := schema.StreamOwner(e.Name()); ok && interrupted[db] != nil {
			if err := quarantine.put(e.Name(), db, interrupted[db]); err != nil {
				return err
			}
		}
	}
	return nil
}
