package machine

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// TestPanic: a mutation that panics gets a 503 and changes nothing; the next ones are
// decided. Ids of folded events are not held in memory.
func TestPanic(t *testing.T) {
	store, err := projections.Open("projection", projections.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	m, err := NewMachine(store)
	if err != nil {
		t.Fatal(err)
	}
	decide := func(code int, tail, id string) {
		t.Helper()
		mu := schema.NewMutation(tail, []byte(`{}`))
		mu.MsgID = id
		if o, err := m.Decide(1_000_000, mu); err != nil || o.Code != code {
			t.Fatalf("%s is decided as %+v (%v), want %d", tail, o, err, code)
		}
	}
	decide(201, "collection.create.c", "")
	decide(201, "document.upsert.c.a", "first")
	before, messages := fmt.Sprint(m.Seq(), m.Pending()), m.overlay.messages
	m.overlay.messages = nil
	decide(503, "document.upsert.c.a", "second")
	if after := fmt.Sprint(m.Seq(), m.Pending()); after != before {
		t.Errorf("a panic changed the machine from %s to %s", before, after)
	}
	m.overlay.messages = messages
	decide(200, "document.upsert.c.a", "second")
	m.Take()
	if err := m.Commit(m.Seq()); err != nil {
		t.Fatal(err)
	}
	if len(messages) > 0 {
		t.Errorf("%d ids are still held", len(messages))
	}
}
