package processor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/projections"
)

// TestKeepFlushed: a start after a crash folds only the last minute again, and flushed
// state is not flushed twice.
func TestKeepFlushed(t *testing.T) {
	disk := vfs.NewCrashableMem()
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		for _, id := range []string{"a", "b"} {
			w.Want(201, "document.create.c."+id, `{}`)
			time.Sleep(processor.FlushInterval)
			synctest.Wait()
			crashed, err := projections.Open("projection", projections.Options{FS: disk.CrashClone(vfs.CrashCloneCfg{})})
			w.Check(err)
			if got, want := crashed.Cursor(), w.Inside().Store.Cursor(); got != want {
				t.Errorf("the start after a crash begins at %+v, want %+v", got, want)
			}
			w.Check(crashed.Close())
		}
		before := w.Inside().Store.Health().Flushes
		time.Sleep(10 * processor.FlushInterval)
		if n := w.Inside().Store.Health().Flushes - before; n != 0 {
			t.Errorf("%d flushes of nothing", n)
		}
	}, func(o *processor.Options) { o.Projection.FS = disk })
}
