package processor

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

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// TestProjectionDiskFull: on a full projection disk the processor fails with an error of
// one line, answers what it still receives, and stops. With space again it resumes and
// has every acknowledged write.
func TestProjectionDiskFull(t *testing.T) {
	rng := stress.Rand(t)
	var left atomic.Int64 // operations until the disk is full
	full := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpFileClose || op.Kind == errorfs.OpLock ||
			op.Kind == errorfs.OpRemove || op.Kind == errorfs.OpRemoveAll || left.Add(-1) >= 0 {
			return nil
		}
		return syscall.ENOSPC
	})
	const plenty = 1 << 40
	left.Store(plenty)
	w := newWire(t, func(o *Options) {
		o.Dir = "projection"
		o.Projection.FS, o.Projection.MemTableBytes = errorfs.Wrap(vfs.NewMem(), full), 64<<10
	})
	w.want(201, "collection.create.load", `{"defaultTtl":3600}`)
	l := &load{wire: w, told: map[string]bool{}, ending: make(chan struct{})}
	isFull := func(err error) {
		t.Helper()
		if !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "\n") || !strings.HasSuffix(err.Error(), "free some space and start again") {
			t.Errorf("it says %q", err)
		}
	}
	for round := range stress.Pick(3, 30) {
		if round%3 == 2 { // full before it starts
			w.stop()
			left.Store(rng.Int64N(10))
			if p, err := Start(w.ctx(), w.connections(), w.options); err != nil {
				isFull(err)
				left.Store(plenty)
				w.start()
				left.Store(rng.Int64N(100))
			} else {
				w.processor = p // the space was enough to start
			}
		} else {
			left.Store(rng.Int64N(100))
		}
		l.ending = make(chan struct{})
		for i := range 4 {
			l.wg.Go(func() { l.request(1000*round + i) })
		}
		select {
		case err := <-w.processor.Failed():
			isFull(err)
		case <-time.After(patience):
			t.Fatalf("nobody is told, with %d operations left", left.Load())
		}
		n := fmt.Sprint("full", round)
		l.note(n, false)
		if r := w.ask("document.upsert.load.x", fmt.Sprintf(`{"n":%q}`, n)); r.code != 503 && r.code != 504 {
			t.Errorf("a write on a full disk: %s", r)
		}
		w.want(200, "collection.list", "")
		close(l.ending)
		l.wg.Wait()
		isFull(w.processor.Stop())
		w.processor = nil
		left.Store(plenty)
		w.start()
		l.verify()
	}
	w.want(201, "document.create.load.last", "{}")
	w.refoldInMemory()
}

// refoldInMemory restarts with an empty projection in memory and compares the content.
func (w *wire) refoldInMemory() {
	w.t.Helper()
	before := w.content()
	w.stop()
	w.options.Projection.FS = vfs.NewMem()
	w.start()
	if w.content() != before {
		w.t.Error("folded again it is something else")
	}
	if e := w.events(); e[len(e)-1].Type != schema.DocumentCreated {
		w.t.Errorf("the log ends with %s", e[len(e)-1].Type)
	}
}
