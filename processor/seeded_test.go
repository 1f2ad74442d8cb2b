package processor

import (
	"testing"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// TestFenceOfFirst: what has no event of the same epoch before it to ask for,
// the first one and an atomic batch, asks for a sequence, and does not come in
// behind a foreign message.
func TestFenceOfFirst(t *testing.T) {
	for _, atomic := range []bool{false, true} {
		w := newWire(t)
		w.stop()
		log, err := openLog(w.ctx(), w.log, "main", w.options.Logger)
		w.check(err)
		defer log.close()
		w.check(log.listen())
		event := func(seq uint64) projections.Fact {
			return projections.Fact{Event: &schema.Event{Seq: seq, Time: 1, Type: schema.CollectionCreated, Collection: "c"}}
		}
		w.intrude("c.Foreign", "")
		w.check(log.Append([]projections.Fact{event(2), event(3)}, atomic))
		if a := <-log.acks; a.err == nil {
			t.Errorf("atomic=%t: event %d came into the log behind a foreign message", atomic, a.seq)
		}
		if end := w.end(); end != 2 {
			t.Errorf("atomic=%t: the log ends at %d, want the foreign message at 2", atomic, end)
		}
	}
}

// TestRefusalWaits: what is refused, or a repeat, because of a pending event
// is told when the log has that.
func TestRefusalWaits(t *testing.T) {
	m := fresh(t)
	create := schema.NewNamedMutation("document.create", "orders", "a", []byte(`{}`))
	create.MsgID = "m"
	made, err := m.Decide(1000_000, create)
	if err != nil || made.Code != 201 {
		t.Fatalf("%+v (%v)", made, err)
	}
	if again, err := m.Decide(1000_000, create); err != nil || again.Repeat != made.Seq || again.Seq != made.Seq {
		t.Errorf("the repeat of event %d is %+v (%v)", made.Seq, again, err)
	}
	other := schema.NewNamedMutation("document.create", "orders", "a", []byte(`{}`))
	if o, err := m.Decide(1000_000, other); err != nil || o.Code != 409 || o.Seq != made.Seq {
		t.Errorf("refused because of event %d it is %+v (%v)", made.Seq, o, err)
	}
}
