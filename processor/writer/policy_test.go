package writer_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
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

// TestPolicyChangeDoesNotWaitForOthers: however much is due, a change of policy, which
// all other mutations wait for, is decided as soon as nothing is pending.
func TestPolicyChangeDoesNotWaitForOthers(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.sessions", `{"defaultTtl":60}`)
		w.Want(201, "collection.create.orders", `{}`)
		processortest.SleepUntil(time.Now().Unix()+1, 100)
		const documents = 5 * 1024
		for done := 0; done < documents; done += schema.MaxOperations {
			var operations []string
			for i := range min(schema.MaxOperations, documents-done) {
				operations = append(operations, fmt.Sprintf(`{"op":"create","id":"%d","body":{}}`, done+i))
			}
			w.Want(200, "batch.sessions", fmt.Sprintf(`{"operations":[%s]}`, strings.Join(operations, ",")))
		}
		release := w.HoldWriter()
		w.Check(w.Client.PublishRequest("lapse.main.api.collection.replace.orders", w.Client.NewInbox(), []byte(`{"previousImages":false}`)))
		time.Sleep(2 * time.Minute)
		release()
		w.Eventually("all expired", func() bool { return w.End() >= documents+documents+3 })
		time.Sleep(time.Second)
		expired := 0
		for _, e := range w.Events() {
			switch e.Type {
			case schema.DocumentExpired:
				expired++
			case schema.CollectionReplaced:
				if expired > documents/2 {
					t.Errorf("the policy changed after %d of %d expiries", expired, documents)
				}
				return
			}
		}
		t.Error("the policy did not change")
	})
}
