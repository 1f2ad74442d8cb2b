package snapshot_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/processortest"
)

// TestProjectionIsACache: whatever happens to the projection files while no processor
// runs, the next one serves the content of the log.
func TestProjectionIsACache(t *testing.T) {
	w := processortest.New(t, processortest.OnDisk(t), func(o *processor.Options) { o.Projection.MemTableBytes = 64 << 10 })
	w.Want(201, "collection.create.c", `{"defaultTtl":3600}`)
	w.Want(201, "collection.create.gone", `{}`)
	for i := range 600 {
		w.Want(201, fmt.Sprintf("document.create.c.%d", i), fmt.Sprintf(`{"p":"%s"}`, strings.Repeat("x", 500+i)))
	}
	w.Want(204, "collection.delete.gone", "")
	w.Want(204, "document.delete.c.7", "")
	w.Judged(w.Publish("document.upsert.c.m", `{"ttl":4000}`))
	change := func(pattern string, do func(file string, size int64) error) func() {
		return func() {
			files, err := filepath.Glob(filepath.Join(w.Options.Dir, pattern))
			if err != nil || len(files) == 0 {
				t.Fatalf("%s: %v, %v", pattern, files, err)
			}
			for _, file := range files {
				info, err := os.Stat(file)
				w.Check(err)
				w.Check(do(file, info.Size()))
			}
		}
	}
	remove := func(file string, _ int64) error { return os.Remove(file) }
	halve := func(file string, size int64) error { return os.Truncate(file, size/2) }
	overwrite := func(file string, size int64) error {
		return os.WriteFile(file, []byte(strings.Repeat("?", int(size))), 0o600)
	}
	flip := func(file string, size int64) error { // it opens: what locates the index is at the end
		b, err := os.ReadFile(file)
		for i := range b[:size/2] {
			b[i] ^= 1
		}
		return errors.Join(err, os.WriteFile(file, b, 0o600))
	}
	for _, damage := range []struct {
		name string
		do   func()
		seen bool // the projection is unusable
	}{
		{"removed", w.RemoveProjection, false},
		{"of a later version", func() { w.Check(ofLaterVersion(w.Options.Dir)) }, true},
		{"tables truncated", change("*.sst", halve), true},
		{"tables removed", change("*.sst", remove), true},
		{"content of tables", change("*.sst", flip), true},
		{"manifest truncated", change("MANIFEST-*", halve), false},
		{"manifest overwritten", change("MANIFEST-*", overwrite), true},
		{"manifest removed", change("MANIFEST-*", remove), false},
		{"markers removed", change("marker.*", remove), false},
		{"a file in its place", func() { w.RemoveProjection(); w.Check(os.WriteFile(w.Options.Dir, []byte("no directory"), 0o600)) }, true},
	} {
		t.Run(damage.name, func(t *testing.T) {
			before := w.Content()
			w.Stop()
			damage.do()
			w.Logs.Reset()
			w.Start()
			if after := w.Content(); after != before {
				t.Errorf("it is now\n%.2000s\n, before\n%.2000s", after, before)
			}
			if told := strings.Contains(w.Logs.String(), "folded again"); damage.seen && !told {
				t.Errorf("nobody was told:\n%s", w.Logs)
			}
			w.Want(200, "document.upsert.c.1", "{}")
			w.Want(200, "history.c.7", "")
		})
	}
}

// TestDamageFoundLate: a start that finds damage after it has opened the projection folds
// the log again.
func TestDamageFoundLate(t *testing.T) {
	disk, remade := &flipping{FS: vfs.NewMem()}, atomic.Bool{}
	w := processortest.New(t, func(o *processor.Options) {
		o.Projection.FS, o.Projection.MemTableBytes = disk, 64<<10
		o.Events = func(e observe.Event) {
			switch e.(type) {
			case observe.CaughtUp:
				disk.on.Store(disk.armed.Swap(false))
			case observe.ProjectionRemade:
				disk.on.Store(false)
				remade.Store(true)
			}
		}
	})
	w.Want(201, "collection.create.c", `{"defaultTtl":3600}`)
	w.Want(201, "document.create.c.a", `{"n":1}`)
	for i := range 600 { // more than a block of each kind of key
		w.Want(201, fmt.Sprintf("document.create.c.%d", i), fmt.Sprintf(`{"p":"%s"}`, strings.Repeat("x", 500)))
	}
	w.Stop()
	disk.armed.Store(true)
	w.Start()
	w.Want(200, "document.get.c.a", "")
	if !remade.Load() {
		t.Error("the log is not folded again")
	}
}

// flipping is a disk that returns damaged tables while on.
type flipping struct {
	vfs.FS
	armed, on atomic.Bool
}

func (f *flipping) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err == nil && strings.HasSuffix(name, ".sst") {
		file = flippingFile{file, f}
	}
	return file, err
}

type flippingFile struct {
	vfs.File
	disk *flipping
}

func (f flippingFile) ReadAt(p []byte, at int64) (n int, err error) {
	n, err = f.File.ReadAt(p, at)
	for i := range p[:n] {
		if f.disk.on.Load() {
			p[i] ^= 1
		}
	}
	return n, err
}

// ofLaterVersion makes a projection one of the format after this one, as a version leaves it
// that is rolled back.
func ofLaterVersion(dir string) error {
	db, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}})
	if err != nil {
		return err
	}
	cursor := []byte("M") // KEYS.md
	value, closer, err := db.Get(cursor)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	later := regexp.MustCompile(`"format":\d+`).ReplaceAll(value, []byte(`"format":999`))
	return errors.Join(closer.Close(), db.Set(cursor, later, pebble.Sync), db.Close())
}

type quiet struct{}

func (quiet) Infof(string, ...any)            {}
func (quiet) Errorf(string, ...any)           {}
func (quiet) Fatalf(text string, args ...any) { panic(fmt.Sprintf(text, args...)) }
