package processor

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// storeInMemory returns an empty projection of small files in memory.
func storeInMemory(t rapid.TB) *projections.Store {
	t.Helper()
	store, err := projections.Open("projection", projections.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20, MemTableBytes: 1 << 20, NoIndexes: true})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// TestSimulationIsTheMachine runs histories in which everything happens when it
// is due, once with each event folded at once and checked against the model,
// and once as simulate does it: the bytes are the same.
func TestSimulationIsTheMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		defer h.close()
		var simulated []byte
		simulation, err := NewSimulation(func(e *schema.Event) error {
			simulated = append(e.AppendJSON(simulated), '\n')
			return nil
		})
		h.must(err)
		for range rapid.IntRange(0, 40).Draw(t, "changes") {
			h.advance(t, h.now+rapid.SampledFrom([]int64{0, 0, 1, 500, 1000, 2000, 3000, 20_000}).Draw(t, "ms"))
			for _, c := range h.decided.collections {
				for id, d := range c.documents {
					if c.due(d, h.now/1000) {
						t.Fatalf("%s is due and did not expire before the next change", id)
					}
				}
			}
			w := h.wish(t)
			h.decide(w)
			h.take()
			h.commitFirst(len(h.pending))
			h.expireAll(t) // what a new policy makes due is due at once
			_, err := simulation.Mutate(h.now, w.mutation())
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
