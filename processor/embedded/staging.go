package embedded

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// A stream without replicas stages each atomic batch in a file store of its own, which NATS
// creates, syncs and deletes: several times the cost of syncing the batch in the stream.
// After a crash between the first and the last message of a batch, the next start needs the
// staged batch to append the rest. A batch that only saves syncs, and need not be appended
// all or none, is staged in memory: by a symbolic link at the place where NATS is about to
// stage it. There it survives a kill; after a power cut the stream ends within the batch,
// of which nothing was acknowledged.
//
//	batches/3gXv2kQp ─► /dev/shm/lapse-batches-1f2e…/3gXv2kQp
//
// The writer may have two such batches at a time: while NATS appends one, the next is sent.
// More, or larger ones, are staged on disk as if this file did not exist.
type staging struct {
	links  string   // where NATS stages the batches of a stream
	memory string   // a directory in memory, of this store alone
	staged []string // names of links that may be there
}

// maxStaged limits a batch that is staged in memory, in bytes; at most two at a time are.
const maxStaged = 8 << 20

// Stage returns a function that prepares a batch of the given bytes for the database's
// log and returns its id, "" if the batch is not staged in memory. The function is for
// one goroutine; it is nil if there is no file system in memory.
func (s *Server) Stage(db schema.DatabaseName) func(bytes int) (batch string) {
	if s.memory.path == "" {
		return nil
	}
	st := &staging{links: filepath.Join(s.nats.StoreDir(), account, "streams", db.LogStream(), "batches"), memory: s.memory.path}
	return st.stage
}

// stage makes a directory in memory and the link to it, and returns the id that the batch
// must have for NATS to use it. First it removes directories whose links NATS has removed,
// that is, whose batches are appended. Whatever fails, the batch is staged on disk instead.
func (st *staging) stage(bytes int) (batch string) {
	linked := st.staged[:0]
	for _, name := range st.staged {
		// NATS removes only the link.
		if _, err := os.Lstat(filepath.Join(st.links, name)); err == nil {
			linked = append(linked, name)
		} else {
			_ = os.RemoveAll(filepath.Join(st.memory, name))
		}
	}
	st.staged = linked
	if bytes > maxStaged || len(linked) > 1 || !inMemory(st.memory, 2*maxStaged) {
		return ""
	}
	batch = rand.Text()
	name := batchName(batch)
	to, link := filepath.Join(st.memory, name), filepath.Join(st.links, name)
	if os.Mkdir(to, 0o700) != nil {
		return ""
	}
	err := os.Symlink(to, link)
	if errors.Is(err, fs.ErrNotExist) { // the first batch since the start
		if err = os.MkdirAll(st.links, 0o755); err == nil {
			err = os.Symlink(to, link)
		}
	}
	if err != nil {
		_ = os.RemoveAll(to)
		return ""
	}
	st.staged = append(st.staged, name)
	return batch
}

// batchName returns NATS' name for the directory of a batch: getHash of nats-server 2.15.
// With another name the batch would be staged on disk.
func batchName(batch string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(batch))
	name := sum[:8]
	for i, b := range name {
		name[i] = digits[int(b)%len(digits)]
	}
	return string(name)
}

// memory is a store's directory in memory. Its lock tells living processes from killed
// ones: it ends with the process, however that ends. The zero memory is none.
//
// A process that is killed leaves its directory. Its own next start needs it, and removes
// it once NATS has read it; if there is no next start, another process of lapse on this
// machine removes it after keepLeftovers (removeLeftovers).
type memory struct {
	path string
	lock *os.File
}

// memoryPath returns the path of the store's directory in memory, "" if the system has no
// file system in memory.
func memoryPath(storeDir string) string {
	path, err := filepath.EvalSymlinks(storeDir)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil || sharedMemory == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(sharedMemory, memoryPrefix+hex.EncodeToString(sum[:8]))
}

const memoryPrefix = "lapse-batches-"

// removeLeftovers removes the directory in memory that is at path, and those of other
// processes that live no more and did not start again within keepLeftovers. Their stores
// lose by it what a power cut would lose: events that were not acknowledged.
func removeLeftovers(path string) {
	leftovers, _ := filepath.Glob(filepath.Join(sharedMemory, memoryPrefix+"*"))
	for _, other := range leftovers {
		if dir, err := os.Stat(other); other != path && (err != nil || time.Since(dir.ModTime()) < keepLeftovers) {
			continue
		}
		if lock := lockDir(other); lock != nil {
			memory{other, lock}.remove()
		}
	}
}

// keepLeftovers is how long a killed process may take to start again: two that are killed
// together don't remove what the other is about to read.
const keepLeftovers = 10 * time.Minute

// openMemory creates a directory in memory. It returns none if there is not enough space,
// or if another process has that directory, as one in a container may.
func openMemory(path string) memory {
	if path == "" || !inMemory(sharedMemory, 8*maxStaged) {
		return memory{}
	}
	for os.Mkdir(path, 0o700) == nil {
		if lock := lockDir(path); lock != nil {
			return memory{path, lock}
		} // else another process mistakes it for a leftover
	}
	return memory{}
}

// remove removes the directory, and only then gives up the lock.
func (m memory) remove() {
	if m.path != "" {
		_ = os.RemoveAll(m.path)
		_ = m.lock.Close()
	}
}
