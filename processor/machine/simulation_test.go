package machine

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/schema"
)

// TestSimulationMatchesMachine runs histories in which everything is swept when it is due,
// once with each event folded at once and checked against the model, and once as
// simulate does it: the logs are identical in bytes.
func TestSimulationMatchesMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		defer h.close()
		var simulated []byte
		var log eventList
		simulation, err := NewSimulation(func(e *schema.Event) error {
			log = append(log, e)
			simulated = append(e.AppendJSON(simulated), '\n')
			return nil
		})
		h.must(err)
		simulation.Machine.History = AtHand{&log}
		for range rapid.IntRange(0, 40).Draw(t, "changes") {
			h.advance(t, h.now+rapid.SampledFrom([]int64{0, 0, 1, 500, 1000, 2000, 3000, 20_000}).Draw(t, "ms"))
			for _, c := range h.decided.Collections {
				for id, d := range c.Documents {
					if c.Deadline(d).Passed(h.now/1000) || c.Warns(d, h.now/1000) {
						t.Fatalf("%s is due and did not expire before the next change, or was not warned of", id)
					}
				}
			}
			w := h.wish(t)
			h.decide(w)
			h.take()
			h.commitFirst(len(h.pending))
			h.expireAll(t) // documents that a new policy makes due are due at once
			_, err := simulation.Mutate(h.now, mutation(w))
			h.must(err)
		}
		h.finish(t)
		h.must(simulation.Finish())
		var driven []byte
		for _, e := range h.log {
			driven = append(e.AppendJSON(driven), '\n')
		}
		if !bytes.Equal(simulated, driven) {
			t.Fatalf("simulated:\n%s\ndriven:\n%s", simulated, driven)
		}
	})
}

// eventList is the History of a simulation.
type eventList []*schema.Event

func (l *eventList) Last(name schema.CollectionName, id schema.DocumentID) (seq uint64, err error) {
	for _, e := range *l {
		if e.Type.OnDocument() && e.Collection == name && e.ID == id {
			seq = e.Seq
		}
	}
	return seq, nil
}

func (l *eventList) Event(seq uint64) (*schema.Event, error) {
	if seq > uint64(len(*l)) {
		return nil, nil
	}
	return (*l)[seq-1], nil
}
