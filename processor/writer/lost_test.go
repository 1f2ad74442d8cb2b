package writer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/schema"
)

// TestLostAcknowledgements: events in the log whose acknowledgement was lost are found
// there, not appended again.
func TestLostAcknowledgements(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":3600}`)
		seq := w.End()
		w.LoseAcks()
		began := time.Now()
		answers := make(chan processortest.Reply)
		go func() { answers <- w.Ask("document.create.c.a", `{}`) }()
		go func() { answers <- w.Ask("document.create.c.a", `{}`) }()
		go func() {
			answers <- w.Ask("batch.c", `{"atomic":true,"operations":[{"op":"create","id":"b","body":{}},{"op":"create","id":"c","body":{}}]}`)
		}()
		published := w.Publish("document.create.c.m", `{}`)
		codes := map[int]int{}
		for range 3 {
			codes[(<-answers).Code]++
		}
		if codes[201] != 1 || codes[409] != 1 || codes[200] != 1 {
			t.Errorf("the answers are %v", codes)
		}
		if waited := time.Since(began); waited < writer.AckTimeout || waited > 2*writer.AckTimeout {
			t.Errorf("it was noticed after %s", waited)
		}
		w.Judged(published)
		w.LoseAcks() // of a batch alone in flight
		w.Want(200, "batch.c", `{"atomic":true,"operations":[{"op":"create","id":"d","body":{}},{"op":"create","id":"e","body":{}}]}`)
		created := map[schema.DocumentID]int{}
		for _, e := range w.Events() {
			if e.Seq > seq {
				created[e.ID]++
			}
		}
		if fmt.Sprint(created) != "map[a:1 b:1 c:1 d:1 e:1 m:1]" {
			t.Errorf("the log has %v", created)
		}
	})
}

// TestSecondWriter: of two processors over one log the last one started writes, and the
// other one ends instead of fighting.
func TestSecondWriter(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", `{}`)
	first := w.Processor
	w.Options.Dir += "-2"
	service, err := w.Connect()
	w.Check(err)
	defer func() { service.Close() }()
	w.Service, service = service, w.Service
	w.Start()
	second := w.Processor
	// Whichever processor is asked, its reply is true.
	for i := range 20 {
		r := w.Ask(fmt.Sprintf("document.create.c.%d", i), "{}")
		if r.Code != 201 && r.Code != 503 {
			t.Fatalf("write %d: %s", i, r)
		}
	}
	if err := first.Stop(); err != nil && !strings.Contains(err.Error(), "taken over") {
		t.Errorf("the first one ended with %v", err)
	}
	w.Processor = second
	w.Want(201, "document.create.c.last", "{}")
}
