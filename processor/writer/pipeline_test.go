package writer

import (
	"testing"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// TestAtomicBatchWaits: an atomic batch is fenced by its sequence alone, so it is sent
// only when nothing is in flight, even if it is as large as a full group.
func TestAtomicBatchWaits(t *testing.T) {
	event := func(seq uint64) projections.Fact { return projections.Fact{Event: &schema.Event{Seq: seq}} }
	for _, synced := range []bool{true, false} {
		for _, size := range []int{2, fullGroup} {
			term := &Term{Writer: New(Config{Synced: synced, AtomicBatch: eventlog.MaxAtomic}, &eventlog.Log{}, nil, nil)}
			var batch []projections.Fact
			for i := range size {
				batch = append(batch, event(uint64(3+i)))
			}
			term.addUnsent([]projections.Fact{event(2)}, false)
			term.addUnsent(batch, true)
			if facts, as := term.nextGroup(); len(facts) != 1 || as != eventlog.Single {
				t.Errorf("synced %t: first %d events, as %d", synced, len(facts), as)
			}
			term.groups = []group{{last: 2}}
			if facts, _ := term.nextGroup(); facts != nil {
				t.Errorf("synced %t: the batch of %d is sent while an event is in flight", synced, size)
			}
			term.groups = nil
			if facts, as := term.nextGroup(); len(facts) != size || as != eventlog.Atomic || len(term.unsent) != 0 {
				t.Errorf("synced %t: then %d events, as %d, %d segments left", synced, len(facts), as, len(term.unsent))
			}
		}
	}
}
