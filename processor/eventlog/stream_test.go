package eventlog_test

import (
	"testing"

	"strings"

	"fmt"

	"github.com/lapsedb/lapse/processor/processortest"
)

// TestMutationStreamRecreated: if the stream of mutations was removed, the new one continues
// behind the last judged sequence.
func TestMutationStreamRecreated(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Judged(w.Publish("collection.create.c", `{}`))
		w.Judged(w.Publish("document.create.c.a", `{}`))
		w.Stop()
		w.Check(w.JS().DeleteStream(w.Ctx(), "LAPSE_main_MUTATIONS"))
		w.Start()
		if seq := w.Publish("document.create.c.b", `{}`); seq != 3 {
			t.Errorf("the next mutation is %d, want 3", seq)
		}
		w.Judged(3)
		w.Want(200, "document.get.c.b", "")
	})
}

// TestStatusHeaders: a mutation that looks like a JetStream status message to a consumer
// is judged like any other, and so are those behind it.
func TestStatusHeaders(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	statuses := []string{"100", "400", "404", "408", "409", "423", "503", "x"}
	descriptions := []string{"", "Consumer Deleted", "No Messages", "Batch Completed", "Idle Heartbeat", "Message Size Exceeds MaxBytes", "Server Shutdown"}
	before := w.End()
	for _, status := range statuses {
		for _, description := range descriptions {
			w.Publish("document.delete.c.gone", "", "Status", status, "Description", description, "Nats-Pending-Messages", "512")
		}
	}
	last := w.Publish("document.upsert.c.a", "{}")
	w.Judged(last)
	if got := strings.Count(w.Summary(before), "MutationRejected"); got != int(last)-1 {
		t.Errorf("%d of %d mutations were rejected", got, last-1)
	}
}

// TestUnparsableHeadersRejected: a mutation whose headers NATS cannot parse is rejected, since
// they may hold a condition.
func TestUnparsableHeadersRejected(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	conn := w.Raw()
	before := w.End()
	blocks := []string{"NATS/1.0\r\nIf-Match: 7\r\n", "NATS/1.0\r\nIf-Match: 7\r\nno colon\r\n\r\n", "HTTP/1.1\r\nIf-Match: 7\r\n\r\n", "If-Match: 7\r\n\r\n", "NATS/1.0\r\nif-match : 7\r\n\r\n"}
	for _, block := range blocks {
		_, err := fmt.Fprintf(conn, "HPUB lapse.main.mutations.document.upsert.c.a %d %d\r\n%s{}\r\n", len(block), len(block)+2, block)
		w.Check(err)
	}
	w.Judged(uint64(len(blocks)))
	if got := w.Summary(before); got != strings.TrimSpace(strings.Repeat("MutationRejected ", len(blocks))) {
		t.Errorf("the log has %s", got)
	}
}
