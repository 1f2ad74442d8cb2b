package processor_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// TestProjectionDiskFull: on a full projection disk the processor fails with an error of
// one line, answers what it still receives, and stops. With space again it resumes and
// has every acknowledged write.
func TestProjectionDiskFull(t *testing.T) {
	rng := stress.Rand(t)
	var remaining atomic.Int64 // operations until the disk is full
	full := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpFileClose || op.Kind == errorfs.OpLock ||
			op.Kind == errorfs.OpRemove || op.Kind == errorfs.OpRemoveAll || remaining.Add(-1) >= 0 {
			return nil
		}
		return syscall.ENOSPC
	})
	const plenty = 1 << 40
	remaining.Store(plenty)
	w := processortest.New(t, func(o *processor.Options) {
		o.Dir = "projection"
		o.Projection.FS, o.Projection.MemTableBytes = errorfs.Wrap(vfs.NewMem(), full), 64<<10
	})
	w.Want(201, "collection.create.load", `{"defaultTtl":3600}`)
	l := newLoad(w, rng, time.Millisecond)
	isFull := func(err error) {
		t.Helper()
		if !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "\n") || !strings.HasSuffix(err.Error(), "free some space and start again") {
			t.Errorf("it says %q", err)
		}
	}
	for round := range stress.Pick(3, 30) {
		if round%3 == 2 { // full before it starts
			w.Stop()
			remaining.Store(rng.Int64N(10))
			if err := w.TryStart(); err != nil {
				isFull(err)
				remaining.Store(plenty)
				w.Start()
				remaining.Store(rng.Int64N(100))
			}
		} else {
			remaining.Store(rng.Int64N(100))
		}
		l.start(4*round, 4)
		select {
		case err := <-w.Processor.Failed():
			isFull(err)
		case <-time.After(processortest.Patience):
			t.Fatalf("nobody is told, with %d operations left", remaining.Load())
		}
		n := fmt.Sprint("full", round)
		l.note(n, unsure)
		if r := w.Ask("document.upsert.load.x", fmt.Sprintf(`{"n":%q}`, n)); r.Code != 503 && r.Code != 504 {
			t.Errorf("a write on a full disk: %s", r)
		}
		w.Want(200, "collection.list", "")
		l.end()
		isFull(w.Processor.Stop())
		w.Processor = nil
		remaining.Store(plenty)
		w.Start()
		l.verify()
	}
	w.Want(201, "document.create.load.last", "{}")
	refoldInMemory(w)
}

// refoldInMemory restarts with an empty projection in memory and compares the content.
func refoldInMemory(w *processortest.Wire) {
	w.T.Helper()
	before := w.Content()
	w.Stop()
	w.Options.Projection.FS = vfs.NewMem()
	w.Start()
	if w.Content() != before {
		w.T.Error("folded again it is something else")
	}
	if e := w.Events(); e[len(e)-1].Type != schema.DocumentCreated {
		w.T.Errorf("the log ends with %s", e[len(e)-1].Type)
	}
}
