package writer

import (
	"testing"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// TestAtomicBatchWaits: an atomic batch, which is fenced by its sequence alone, is
// sent when nothing is in flight.
func TestAtomicBatchWaits(t *testing.T) {
	event := func(seq uint64) projections.Fact { return projections.Fact{Event: &schema.Event{Seq: seq}} }
	term := &Term{Writer: New(Config{Synced: true, AtomicBatch: eventlog.MaxAtomic}, &eventlog.Log{}, nil, nil)}
	term.queue([]projections.Fact{event(2)}, false)
	term.queue([]projections.Fact{event(3), event(4)}, true)
	if facts, as := term.nextGroup(); len(facts) != 1 || as != eventlog.Single {
		t.Errorf("first %d events, as %d", len(facts), as)
	}
	term.groups = []group{{last: 2}}
	if facts, _ := term.nextGroup(); facts != nil {
		t.Error("the batch is sent while an event is in flight")
	}
	term.groups = nil
	if facts, as := term.nextGroup(); len(facts) != 2 || as != eventlog.Atomic || len(term.unsent) != 0 {
		t.Errorf("then %d events, as %d, %d segments left", len(facts), as, len(term.unsent))
	}
}
