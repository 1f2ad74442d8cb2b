package backup

import (
	"archive/tar"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/embedded/blocks"
	"github.com/lapsedb/lapse/schema"
)

// format is that of the files. A program refuses a backup with another one.
const format = 1

const manifestName = "backup.json"

// Manifest says what a backup has.
type Manifest struct {
	Format   int                 `json:"format"`
	Database schema.DatabaseName `json:"database"`
	Time     time.Time           `json:"time"`    // of the last run
	Streams  []*Stream           `json:"streams"` // the log first
}

// Stream is what a backup has of a stream. A stream in the manifest, shortened:
//
//	{"config":{"name":"LAPSE_main",…},"first":1,"last":4711,"messages":4711,"message":4711,"time":"…",
//	 "files":[{"index":1,"bytes":8390112,"sha256":"…"},…],"consumers":[…]}
type Stream struct {
	Config    jetstream.StreamConfig `json:"config"`
	First     uint64                 `json:"first"` // First is Last+1 without messages
	Last      uint64                 `json:"last"`  // also of messages that were trimmed
	Messages  uint64                 `json:"messages"`
	Message   uint64                 `json:"message"` // the last one
	Time      time.Time              `json:"time"`    // of that
	Files     []File                 `json:"files,omitempty"`
	Consumers []Consumer             `json:"consumers,omitempty"` // that are durable
}

// File is a file with messages. It is STREAM/<index>.blk.
type File struct {
	Index  uint32 `json:"index"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Consumer is a consumer and the messages up to which it has acknowledged all. Both are
// numbers of its acknowledgement floor: Consumer counts its own deliveries, Stream the
// messages of the log. Restored, it gets everything after that again.
type Consumer struct {
	Config   jetstream.ConsumerConfig `json:"config"`
	Created  time.Time                `json:"created"`
	Consumer uint64                   `json:"consumer"`
	Stream   uint64                   `json:"stream"`
}

// sealed is backup.json. The sum covers the text of Backup as written, so a reader checks
// it before it parses.
type sealed struct {
	SHA256 string          `json:"sha256"` // of Backup
	Backup json.RawMessage `json:"backup"`
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// stream returns what the backup has of a stream, nil for nothing.
func (m *Manifest) stream(name string) *Stream {
	for _, s := range m.Streams {
		if s.Config.Name == name {
			return s
		}
	}
	return nil
}

// Log returns what the backup has of the log, nil for nothing.
func (m *Manifest) Log() *Stream { return m.stream(m.Database.LogStream()) }

// Bytes returns the size of all messages.
func (m *Manifest) Bytes() (bytes int64) {
	for _, s := range m.Streams {
		for _, f := range s.Files {
			bytes += f.Bytes
		}
	}
	return bytes
}

// encode returns the content of backup.json.
func (m *Manifest) encode() ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	text, err = json.Marshal(sealed{sum(text), text})
	return append(text, '\n'), err
}

// ErrNone means that a directory has no backup.
var ErrNone = errors.New("there is no backup in it")

// Load reads what is in the backup in dir, and checks none of its other files.
func Load(dir string) (*Manifest, error) {
	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNone)
	} else if err != nil {
		return nil, err
	}
	var outer sealed
	m := new(Manifest)
	if json.Unmarshal(text, &outer) != nil || sum(outer.Backup) != outer.SHA256 || json.Unmarshal(outer.Backup, m) != nil {
		return nil, fmt.Errorf("%s is damaged: use another backup", filepath.Join(dir, manifestName))
	}
	if m.Format != format {
		return nil, fmt.Errorf("%s is of format %d, and this version of lapse reads format %d: use the version that made it", dir, m.Format, format)
	}
	return m, nil
}

// Verify reads all of the backup in dir, and returns an error for what is not as it was
// written. It costs a read of every byte. Each file has the sum in the manifest, and is a
// file of NATS that can be read to its end. All files together have the messages that the
// manifest counts.
func Verify(dir string) (*Manifest, error) {
	m, err := Load(dir)
	if err != nil {
		return nil, err
	}
	if m.Log() == nil {
		return nil, fmt.Errorf("%s: %w that was completed", dir, ErrNone)
	}
	for _, s := range m.Streams {
		var last, messages uint64
		for _, f := range s.Files {
			name := filepath.Join(dir, s.file(f))
			content, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("%w: use another backup", err)
			}
			sound := sum(content) == f.SHA256 && blocks.Read(s.Config.Name, f.Index, content, func(seq uint64) {
				if seq > last {
					last = seq
					messages++
				}
			})
			if !sound {
				return nil, fmt.Errorf("%s is damaged: use another backup", name)
			}
		}
		if messages != s.Messages || last != s.Message {
			return nil, fmt.Errorf("%s: %d messages of stream %s up to %d, and there were %d up to %d: use another backup", dir, messages, s.Config.Name, last, s.Messages, s.Message)
		}
	}
	return m, nil
}

// file returns the path of a file below the directory of the backup.
func (s *Stream) file(f File) string {
	return filepath.Join(s.Config.Name, blocks.FileName(f.Index))
}

// sink stores files of a backup, backup.json last. Only end makes a backup of what was
// put: before it, the old one is the backup.
type sink interface {
	put(name string, content []byte) error
	end(m *Manifest) error
}

// directory is a sink whose files nobody but their owner may read.
type directory string

func (d directory) put(name string, content []byte) error {
	path := filepath.Join(string(d), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(cmp.Or(err, f.Sync()), f.Close())
}

// end makes the files of m the backup, which the directory has before or after a power cut,
// and removes those that do not belong to it any more. The order makes it safe: files,
// their names, the new backup.json under another name, the rename, its name. A power cut
// before the rename leaves the old backup, one after it the new.
func (d directory) end(m *Manifest) error {
	text, err := m.encode()
	if err != nil {
		return err
	}
	kept := make(map[string]bool)
	for _, s := range m.Streams {
		kept[s.Config.Name] = true
		for _, f := range s.Files {
			kept[s.file(f)] = true
		}
		if err := syncDir(filepath.Join(string(d), s.Config.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	path := filepath.Join(string(d), manifestName)
	if err := d.put(manifestName+".new", text); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	if err := syncDir(string(d)); err != nil {
		return err
	}
	files, err := fs.Glob(os.DirFS(string(d)), "*LAPSE_"+string(m.Database)+"*/*.blk") // d's name is no pattern
	for _, name := range files {
		if name = filepath.FromSlash(name); !kept[name] {
			err = cmp.Or(err, os.Remove(filepath.Join(string(d), name)))
		}
	}
	return err
}

func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// tarball is a sink that writes a tar. A tar has backup.json last, and is no backup
// without it.
type tarball struct{ *tar.Writer }

func (a tarball) put(name string, content []byte) error {
	err := a.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o600, Size: int64(len(content))})
	if err == nil {
		_, err = a.Write(content)
	}
	return err
}

func (a tarball) end(m *Manifest) error {
	text, err := m.encode()
	return cmp.Or(err, a.put(manifestName, text), a.Close())
}

// Unpack writes the files of a tar that SaveTar made to dir. It accepts no path that leads
// out of dir, and no file larger than one of a backup.
func Unpack(from io.Reader, dir string) error {
	for t := tar.NewReader(from); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("it is no tar of a backup: %w", err)
		}
		parts := strings.Split(h.Name, "/")
		if len(parts) > 2 || slices.ContainsFunc(parts, func(p string) bool { return !fs.ValidPath(p) || p == "." }) || h.Size > maxFile {
			return fmt.Errorf("%s is no file of a backup", h.Name)
		}
		content, err := io.ReadAll(t)
		if err == nil {
			err = directory(dir).put(h.Name, content)
		}
		if err != nil {
			return err
		}
	}
}
