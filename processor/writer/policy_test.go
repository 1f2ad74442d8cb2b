package writer_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lapsedb/lapse/processor/processortest"
)

// TestBatchAfterPolicyChange: a batch waits for a change of its collection that was there
// before it.
func TestBatchAfterPolicyChange(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		before := w.End()
		release := w.HoldWriter()
		var asked sync.WaitGroup
		for _, request := range [][2]string{{"document.create.c.a", `{}`}, {"collection.replace.c", `{"defaultTtl":5}`}, {"batch.c", `{"operations":[{"op":"create","id":"b","body":{}}]}`}} {
			asked.Go(func() {
				if r := w.Ask(request[0], request[1]); r.Code >= 300 {
					t.Errorf("%s: %s", request[0], r)
				}
			})
			synctest.Wait()
		}
		release()
		asked.Wait()
		w.WantSummary(before, "DocumentCreated(a) CollectionReplaced DocumentCreated(b)")
	})
}
