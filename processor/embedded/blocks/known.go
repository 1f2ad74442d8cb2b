package blocks

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Known caches what was found in files, so that unchanged files need not be read again. If
// its file is removed, Check reads all of them.
//
// A file is unchanged if its stamp is: size, times and inode (stampOf). was is the cache as
// read, and only read; now has what this process found, and is what Save writes, so entries
// of removed files vanish. Check calls summary from several goroutines; Update and Save are
// called by one, while no Check runs.
type Known struct {
	name string

	mu       sync.Mutex
	was, now map[string]*summary // by path
}

// knownFormat is the version of the cache file and of the summaries in it.
const knownFormat = "lapse blocks 1"

// OpenKnown reads the cache file. The cache is empty if the file is missing or damaged.
func OpenKnown(name string) *Known {
	k := &Known{name: name, now: make(map[string]*summary)}
	text, err := os.ReadFile(name)
	sum, text, ok := bytes.Cut(text, []byte("\n"))
	if err == nil && ok && string(sum) == knownSum(text) {
		_ = json.Unmarshal(text, &k.was)
	}
	return k
}

func knownSum(text []byte) string {
	h := newHash(knownFormat)
	_, _ = h.Write(text)
	return hex.EncodeToString(h.Sum(nil))
}

// Save writes the cache file, by way of another one, with a checksum in its first line. It
// is not synced: after a power cut a damaged cache reads as none.
func (k *Known) Save() error {
	text, err := json.Marshal(k.now)
	if err != nil {
		return err
	}
	temporary := k.name + ".tmp"
	if err := os.WriteFile(temporary, fmt.Appendf(nil, "%s\n%s", knownSum(text), text), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, k.name)
}

// summary returns the summary of a file, from the cache if the file is unchanged. A nil
// Known has no cache.
func (k *Known) summary(c *check, name string, index uint32) (*summary, error) {
	if k == nil {
		return c.summarize(name, index)
	}
	path := filepath.Join(c.dir, name)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	key, stamp := c.stream+"/"+name, stampOf(info)
	k.mu.Lock()
	s, ok := k.was[key]
	k.mu.Unlock()
	if ok && s.Index == index && s.Stamp == stamp {
		s.bad = -1
	} else if s, err = c.summarize(name, index); err != nil {
		return nil, err
	}
	if s.bad < 0 {
		s.Stamp = stamp
		k.mu.Lock()
		k.now[key] = s
		k.mu.Unlock()
	}
	return s, nil
}

// settled is how long a full file must be unchanged before Update reads it.
const settled = 10 * time.Second

// readShare bounds the time that Update reads: one part in so many. The rest of the time
// the disk belongs to the server.
const readShare = 10

// Update reads the files that have become full since the last Update, and saves what it
// found: the next Check reads only the others. The keys of streams are directories, the
// values events as for Check. A server may use the files meanwhile.
func (k *Known) Update(ctx context.Context, streams map[string]string) error {
	found, read := make(map[string]*summary), false // without removed files
	for dir, events := range streams {
		c := &check{dir: messages(dir), stream: filepath.Base(dir), events: events}
		indexes, err := c.indexes()
		if err != nil {
			return err
		}
		for _, index := range indexes[:max(len(indexes)-1, 0)] { // the server adds to the last one
			name := fileName(index)
			path, key := filepath.Join(c.dir, name), c.stream+"/"+name
			info, err := os.Stat(path)
			if err != nil {
				continue
			}
			stamp := stampOf(info)
			if s := k.now[key]; s != nil && s.Stamp == stamp {
				found[key] = s
				continue
			}
			if time.Since(info.ModTime()) < settled {
				continue
			}
			began := time.Now()
			// Data read from the page cache must survive a power cut, too. Check handles
			// a file that is gone or damaged.
			if syncFile(path) == nil {
				if s, err := c.summarize(name, index); err == nil && s.bad < 0 {
					s.Stamp = stamp
					found[key], read = s, true
				}
			}
			select {
			case <-time.After((readShare - 1) * time.Since(began)):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	k.now = found
	if !read {
		return nil
	}
	return k.Save()
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
