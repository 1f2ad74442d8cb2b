package clock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// memory is a file that keeps the origin of an earlier process, so that a restart does not
// make a wrong clock right. It is valid until the machine reboots: elapsed time counts from
// the boot that boot names. Errors of reading are no origin; the log's end is then the only
// witness.
//
//	{"boot":"2f6c…","origin":"2026-11-21T06:12:09.1Z"}
type memory struct {
	fs     vfs.FS
	path   string    // "" for none
	boot   string    // see Config.Boot
	stored time.Time // the origin in the file
}

// remembered is the content of the file.
type remembered struct {
	Boot   string    `json:"boot"`
	Origin time.Time `json:"origin"` // see guard
}

// rememberedStep is how far an origin moves before it is stored again.
const rememberedStep = time.Second

// load returns the stored origin; zero if there is none for this boot.
func (m *memory) load() time.Time {
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

// store replaces the file atomically if origin has moved.
func (m *memory) store(origin time.Time) error {
	if m.path == "" || m.boot == "" || origin.IsZero() || origin.Sub(m.stored).Abs() < rememberedStep {
		return nil
	}
	text, err := json.Marshal(remembered{m.boot, origin})
	if err != nil {
		return err
	}
	// Not synced: after a power cut the boot is another one.
	f, err := m.fs.Create(m.path+".new", vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(append(text, '\n'))
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = m.fs.Rename(m.path+".new", m.path)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w; choose another store directory, or free some space there", m.path, err)
	}
	m.stored = origin
	return nil
}
