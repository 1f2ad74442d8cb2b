package clock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// clockMemory is a file with which a process that starts knows what the machine's
// clock should say, by the time that has passed since an earlier process believed
// it. That holds until the machine starts again.
type clockMemory struct {
	fs     vfs.FS
	path   string // none if empty
	boot   string // names the moment from which elapsed time counts
	stored time.Time
}

// remembered is the content of the file.
type remembered struct {
	Boot   string    `json:"boot"`
	Origin time.Time `json:"origin"` // what the clock said then, see guard
}

// rememberedStep is how much an origin has moved before it is stored again.
const rememberedStep = time.Second

// load returns the origin, zero if there is none of this boot.
func (m *clockMemory) load() time.Time {
	if m.path == "" || m.boot == "" {
		return time.Time{}
	}
	f, err := m.fs.Open(m.path)
	if err != nil {
		return time.Time{}
	}
	defer f.Close()
	var r remembered
	text, err := io.ReadAll(f)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil || r.Boot != m.boot {
		return time.Time{}
	}
	m.stored = r.Origin
	return r.Origin
}

// store replaces the file, whole or not at all, if origin has moved.
func (m *clockMemory) store(origin time.Time) error {
	if m.path == "" || m.boot == "" || origin.IsZero() || origin.Sub(m.stored).Abs() < rememberedStep {
		return nil
	}
	text, err := json.Marshal(remembered{m.boot, origin})
	if err != nil {
		return err
	}
	// A power cut may lose it, but then there is another boot.
	f, err := m.fs.Create(m.path+".new", vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(append(text, '\n'))
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = m.fs.Rename(m.path+".new", m.path)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w; choose another store directory, or make room there", m.path, err)
	}
	m.stored = origin
	return nil
}
