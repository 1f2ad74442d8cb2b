package blocks

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Known has what was found in files before, so that those which have not changed
// need not be read again. It is a cache: whoever removes its file has all of them
// read.
type Known struct {
	name string

	mu       sync.Mutex
	was, now map[string]*summary // by path
}

// knownFormat is that of the file, and of what is found in others.
const knownFormat = "lapse blocks 1"

// OpenKnown reads what was found before; nothing if the file is not as it was
// written.
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

// Save writes down what was found.
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

// summary returns what a file holds, read now or before.
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
