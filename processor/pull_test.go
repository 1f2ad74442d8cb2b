package processor

import (
	"strings"
	"testing"
)

// TestStatusHeaders: a mutation that looks like a JetStream status message to a consumer
// is judged like any other, and so are those behind it. In the log it is foreign.
func TestStatusHeaders(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", "")
	statuses := []string{"100", "400", "404", "408", "409", "423", "503", "x"}
	descriptions := []string{"", "Consumer Deleted", "No Messages", "Batch Completed", "Idle Heartbeat", "Message Size Exceeds MaxBytes", "Server Shutdown"}
	before := w.end()
	for _, status := range statuses {
		for _, description := range descriptions {
			w.publish("document.delete.c.gone", "", "Status", status, "Description", description, "Nats-Pending-Messages", "512")
		}
	}
	last := w.publish("document.upsert.c.a", "{}")
	w.judged(last)
	if got := strings.Count(w.summary(before), "MutationRejected"); got != int(last)-1 {
		t.Errorf("%d of %d mutations were rejected", got, last-1)
	}

	for _, status := range statuses {
		w.intrude("c.Foreign", "", "Status", status, "Description", "Consumer Deleted")
		w.want(200, "document.upsert.c.a", "{}")
	}
	content := w.content()
	w.stop()
	w.removeProjection()
	w.start()
	if w.content() != content {
		t.Error("folded again it is something else")
	}
	if n := w.processor.store.Cursor().Foreign; n != uint64(len(statuses)) {
		t.Errorf("%d foreign messages were counted, want %d", n, len(statuses))
	}
}
