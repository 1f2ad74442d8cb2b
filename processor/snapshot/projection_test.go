package snapshot_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/processortest"
)

// TestProjectionIsACache: whatever happens to the projection files while no processor
// runs, the next one serves the content of the log.
func TestProjectionIsACache(t *testing.T) {
	w := processortest.New(t, func(o *processor.Options) { o.Projection.MemTableBytes = 64 << 10 })
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
	for _, damage := range []struct {
		name string
		do   func()
		seen bool // the projection is unusable
	}{
		{"removed", w.RemoveProjection, false},
		{"of a later version", func() { w.Check(ofLaterVersion(w.Options.Dir)) }, true},
		{"tables truncated", change("*.sst", halve), true},
		{"tables removed", change("*.sst", remove), true},
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
