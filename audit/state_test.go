package audit

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/lapsedb/lapse/schema"
)

// TestFullDisk: Failed reports a full disk, although Pebble would retry for ever.
func TestFullDisk(t *testing.T) {
	var full errorfs.Toggle
	full.Injector = errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.ENOSPC
		}
		return nil
	})
	a, err := New(Options{FS: errorfs.Wrap(vfs.NewMem(), &full)})
	must(t, err)
	for i, e := range []schema.Event{
		{Type: schema.CollectionCreated, Collection: "orders", Body: []byte(`{"defaultTtl":1}`)},
		{Type: schema.DocumentCreated, Collection: "orders", ID: "a", Body: []byte(`{"id":"a"}`)},
	} {
		e.Seq = uint64(i + 1)
		must(t, a.Event(&e))
	}
	must(t, a.state.flush())
	full.On()
	if _, err := a.state.db.AsyncFlush(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-a.Failed():
		if !errors.Is(err, syscall.ENOSPC) {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("nothing is reported")
	}
	full.Off()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
