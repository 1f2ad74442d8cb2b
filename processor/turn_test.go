package processor

import (
	"testing"

	"github.com/lapsedb/lapse/projections"
)

// TestWriterWaitsWithOutcomes: what waits to be told is bounded, whether it
// changed anything or not.
func TestWriterWaitsWithOutcomes(t *testing.T) {
	for _, term := range []*Term{
		{machine: idle(t), replyBytes: maxReplyBytes},
		{machine: idle(t), pendingReplies: make([]decided, maxReplies)},
	} {
		if !term.full() {
			t.Errorf("%d outcomes of %d bytes wait, and there may be more", len(term.pendingReplies), term.replyBytes)
		}
	}
}

// idle returns a machine of an empty database.
func idle(t *testing.T) *Machine {
	t.Helper()
	m, err := NewMachine(projections.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	return m
}
