package embedded

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/lapsedb/lapse/schema"
)

// RemoveStreams removes the log, mutations and snapshots of a database from a store directory
// that no process uses, also those that are damaged. The log goes last: without it lapse would
// begin a new one.
func RemoveStreams(storeDir string, db schema.DatabaseName) (err error) {
	lock, err := LockStore(storeDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	dir := streamsDir(storeDir)
	found, err := filepath.Glob(filepath.Join(dir, "OBJ_"+db.SnapshotStore()+"*"))
	for _, name := range append(found, filepath.Join(dir, db.MutationStream()), filepath.Join(dir, db.LogStream())) {
		if err == nil {
			err = os.RemoveAll(name)
		}
	}
	return err
}
