package processor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/projections"
)

// TestKeepFlushed: a start after a crash folds only the last minute again, and flushed
// state is not flushed twice.
func TestKeepFlushed(t *testing.T) {
	disk := vfs.NewCrashableMem()
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{}`)
		for _, id := range []string{"a", "b"} {
			w.want(201, "document.create.c."+id, `{}`)
			time.Sleep(flushInterval)
			synctest.Wait()
			left, err := projections.Open("projection", projections.Options{FS: disk.CrashClone(vfs.CrashCloneCfg{})})
			w.check(err)
			if got, want := left.Cursor(), w.processor.store.Cursor(); got != want {
				t.Errorf("the start after a crash begins at %+v, want %+v", got, want)
			}
			w.check(left.Close())
		}
		before := w.processor.store.Health().Flushes
		time.Sleep(10 * flushInterval)
		if n := w.processor.store.Health().Flushes - before; n != 0 {
			t.Errorf("%d flushes of nothing", n)
		}
	}, func(o *Options) { o.Projection.FS = disk })
}
