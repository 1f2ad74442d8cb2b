package writer

import (
	"testing"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/projections"
)

// TestWriterWaitsWithOutcomes: what waits to be told is bounded, whether it
// changed anything or not.
func TestWriterWaitsWithOutcomes(t *testing.T) {
	for _, term := range []*Term{
		{Machine: idle(t), ReplyBytes: maxReplyBytes},
		{Machine: idle(t), pendingReplies: make([]decided, maxReplies)},
	} {
		if !term.full() {
			t.Errorf("%d outcomes of %d bytes wait, and there may be more", len(term.pendingReplies), term.ReplyBytes)
		}
	}
}

// idle returns a machine of an empty database.
func idle(t *testing.T) *machine.Machine {
	t.Helper()
	m, err := machine.NewMachine(projections.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	return m
}
