package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lapsedb/lapse/processor/embedded"
)

// testDirPrefix begins the names of the directories that JetStream wants even for streams in
// memory; the process follows.
const testDirPrefix = "lapse-test-"

// makeTestDir makes StoreDir a new directory, in memory if the machine has a file system there.
// It removes those of processes that died.
func (r *run) makeTestDir() (remove func(), err error) {
	parents := []string{"/dev/shm", os.TempDir()}
	for _, parent := range parents {
		removeTestDirs(parent)
	}
	for _, parent := range parents {
		name := filepath.Join(parent, fmt.Sprint(testDirPrefix, os.Getpid()))
		r.StoreDir = name
		for i := 2; ; i++ { // others of this process, or of another container with this number
			if err = os.Mkdir(r.StoreDir, 0o700); !errors.Is(err, fs.ErrExist) {
				break
			}
			r.StoreDir = fmt.Sprint(name, "-", i)
		}
		if err == nil {
			return func() { _ = os.RemoveAll(r.StoreDir) }, nil
		}
	}
	return nil, fmt.Errorf("cannot make a directory for JetStream: %w: let the process write to /dev/shm, or set TMPDIR", err)
}

// removeTestDirs removes the directories whose lock no process holds any more. One without a
// lock is about to get it; others may be another user's.
func removeTestDirs(parent string) {
	locks, _ := filepath.Glob(filepath.Join(parent, testDirPrefix+"*", "lock"))
	for _, name := range locks {
		dir := filepath.Dir(name)
		if lock, err := embedded.LockStore(dir); err == nil {
			_ = os.RemoveAll(dir)
			_ = lock.Close()
		}
	}
}
