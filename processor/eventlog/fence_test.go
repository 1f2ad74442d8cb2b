package eventlog_test

import (
	"testing"

	"fmt"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// listening opens the log for appends, without a processor.
func listening(w *processortest.Wire) *eventlog.Log {
	w.T.Helper()
	log := w.OpenLog()
	w.Check(log.Listen())
	return log
}

// event returns a fact to append at a sequence.
func event(seq uint64) projections.Fact {
	return projections.Fact{Event: &schema.Event{Seq: seq, Time: 1, Type: schema.CollectionCreated, Collection: "c"}}
}

// TestFence: if a foreign message takes the sequence of an event, the log refuses all
// appends in flight, even one whose predecessor would have had that sequence.
func TestFence(t *testing.T) {
	w := processortest.New(t)
	w.Stop()
	log := listening(w)
	w.Check(log.Append([]projections.Fact{event(2)}, eventlog.Single))
	if a := <-log.Acks; a.Err != nil || a.Seq != 2 {
		t.Fatalf("the first event: %+v", a)
	}
	w.Intrude("c.Foreign", "")
	w.Check(log.Append([]projections.Fact{event(3)}, eventlog.Single))
	w.Check(log.Append([]projections.Fact{event(4)}, eventlog.Single))
	w.Check(log.Append([]projections.Fact{event(5), event(6)}, eventlog.Single))
	for range 3 {
		if a := <-log.Acks; a.Err == nil {
			t.Errorf("event %d came into the log behind a foreign message", a.Seq)
		}
	}
	if end := w.End(); end != 3 {
		t.Errorf("the log ends at %d, want the foreign message at 3", end)
	}
}

// TestFenceOfFirstAppend: an append that cannot name an earlier event of its epoch, the first
// one or an atomic batch, names a sequence, and is refused behind a foreign message.
func TestFenceOfFirstAppend(t *testing.T) {
	for _, as := range []eventlog.As{eventlog.Single, eventlog.Group, eventlog.Atomic} {
		w := processortest.New(t)
		w.Stop()
		log := listening(w)
		w.Intrude("c.Foreign", "")
		w.Check(log.Append([]projections.Fact{event(2), event(3)}, as))
		if a := <-log.Acks; a.Err == nil {
			t.Errorf("%d: event %d came into the log behind a foreign message", as, a.Seq)
		}
		if end := w.End(); end != 2 {
			t.Errorf("%d: the log ends at %d, want the foreign message at 2", as, end)
		}
	}
}

// TestAtomicBatchIsOne: the log stores the events of an atomic batch all or none, and
// those of another batch one by one.
func TestAtomicBatchIsOne(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		for _, atomic := range []bool{true, false} {
			before := w.End()
			w.Want(200, "batch.c", fmt.Sprintf(`{"atomic":%t,"operations":[{"op":"upsert","id":"a","body":{}},{"op":"upsert","id":"b","body":{}},{"op":"delete","id":"a"}]}`, atomic))
			batches := make(map[string]int)
			for seq := before + 1; seq <= before+3; seq++ {
				m, err := w.Stream("LAPSE_main").GetMsg(w.Ctx(), seq)
				w.Check(err)
				batches[m.Header.Get(jetstreamext.BatchIDHeader)]++
			}
			if one := len(batches) == 1 && batches[""] == 0; one != atomic {
				t.Errorf("atomic=%t: events by their batches are %v", atomic, batches)
			}
		}
	})
}
