package processor_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// use is the resource use of the process.
type use struct {
	heap       int64 // live
	goroutines int
	files      int // open
}

func used() (u use) {
	stress.Settle()
	u.heap, u.goroutines = stress.Heap(), runtime.NumGoroutine()
	open, err := os.ReadDir("/proc/self/fd")
	if err == nil { // Linux only
		u.files = len(open)
	}
	return u
}

// flat checks that resource use has not grown, within a tolerance; bytes is that of the
// heap.
func flat(t *testing.T, before, after use, bytes int64) {
	t.Helper()
	t.Logf("before %+v, after %+v", before, after)
	if after.heap > before.heap+bytes || after.goroutines > before.goroutines+4 || after.files > before.files+8 {
		t.Errorf("it grew from %+v to %+v", before, after)
	}
}

// directory returns the total size of the files below dir. Files may vanish meanwhile.
func directory(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil {
				bytes += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// silent discards Pebble's log lines.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// historyBytes bounds the file bytes of the projection per ended incarnation: its H key,
// and a share of data not compacted yet.
const historyBytes = 96

// keys counts the keys of the projection by their first byte, while the processor is down.
func keys(w *processortest.Wire) map[string]int {
	w.T.Helper()
	w.Stop()
	db, err := pebble.Open(w.Options.Dir, &pebble.Options{ReadOnly: true, FormatMajorVersion: pebble.FormatNewest, Logger: silent{}})
	w.Check(err)
	it, err := db.NewIter(nil)
	w.Check(err)
	counts := make(map[string]int)
	for ok := it.First(); ok; ok = it.Next() {
		counts[string(it.Key()[:1])]++
	}
	w.Check(errors.Join(it.Close(), db.Close()))
	w.Start()
	return counts
}

// TestCyclesLeaveNothing: documents that expire, and collections that are deleted, leave
// only an entry in their id's history, whether ids are new or reused, with indexes or a
// Nats-Msg-Id. Heap, goroutines, open files and every other kind of key stay as they were.
func TestCyclesLeaveNothing(t *testing.T) {
	total := stress.Pick(6_000, 1_000_000)
	dir := t.TempDir()
	processortest.Bubble(t, func(w *processortest.Wire) {
		const properties = `{"defaultTtl":1,"indexingPolicy":{"includedPaths":[{"path":"/user"},{"path":"/tags"}]}}`
		w.Want(201, "collection.create.sessions", properties)
		create := func(first int) {
			var b strings.Builder
			for i := range schema.MaxOperations {
				fmt.Fprintf(&b, `,{"op":"create","id":"%d","body":{"user":"U%d","tags":["a","b"]}}`, first+i, i%100)
			}
			w.Want(200, "batch.sessions", `{"operations":[`+b.String()[1:]+`]}`)
		}
		round := func(n int) {
			fresh := n % 2 * n // every other round has new ids
			create(fresh * schema.MaxOperations)
			w.Want(200, "query.sessions", `{"where":"doc.user == 'U7'","count":true}`)
			w.Want(200, "history.sessions.1", `{"limit":1}`)
			for i := range 5 {
				w.Want(201, fmt.Sprintf("document.create.sessions.m%d-%d", fresh, i), `{}`, "Nats-Msg-Id", fmt.Sprintf("%d-%d", n, i))
				w.Want(201, fmt.Sprintf("collection.create.c%d-%d", fresh, i), properties)
				w.Want(201, fmt.Sprintf("document.create.c%d-%d.a", fresh, i), `{"user":"U"}`)
			}
			time.Sleep(3 * time.Second)
			for i := range 5 {
				w.Want(204, fmt.Sprintf("collection.delete.c%d-%d", fresh, i), "")
			}
			if status, err := w.Processor.Status(w.Ctx()); err != nil || status.Documents+status.Overdue != 0 {
				t.Fatalf("round %d: %+v, %v", n, status, err)
			}
		}
		quiet := func() { // until every message id is forgotten; each event forgets a few
			time.Sleep(projections.RepeatWindow*time.Millisecond + time.Minute)
			create(0)
			time.Sleep(3 * time.Second)
		}
		n := 0
		for ; n < total/schema.MaxOperations/4; n++ {
			round(n)
		}
		quiet()
		keysBefore := keys(w)
		before, filesBefore, first := used(), directory(t, w.Options.Dir), n
		for ; n < total/schema.MaxOperations; n++ {
			round(n)
		}
		quiet()
		keys := keys(w)
		flat(t, before, used(), 20<<20) // JetStream keeps the last block of each stream in memory
		lives, files := int64(n-first)*schema.MaxOperations, directory(t, w.Options.Dir)
		t.Logf("%d lives: keys %v, before %v; files of %d KiB, before %d", lives, keys, keysBefore, files>>10, filesBefore>>10)
		if files > filesBefore+lives*historyBytes+4<<20 {
			t.Errorf("the projection grew from %d to %d bytes in %d lives", filesBefore, files, lives)
		}
		delete(keys, "H")
		delete(keysBefore, "H")
		if !maps.Equal(keys, keysBefore) {
			t.Errorf("the projection has keys %v, and had %v", keys, keysBefore)
		}
		w.Idle()
	}, func(o *processor.Options) {
		o.Dir, o.Projection.FS, o.Projection.DocumentBytes = filepath.Join(dir, "projection"), vfs.Default, 1<<20
	})
}
