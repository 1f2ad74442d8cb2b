package machine

import (
	"fmt"
	"testing"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// costMutations is the number of mutations of each history of TestSimulationCost.
const costMutations = 1000

// costShape makes histories whose cost must not grow with the documents there.
type costShape struct {
	name string
	// next returns the i-th mutation. id and body are of documents; warnBefore is that of
	// collections.
	next func(i int, id func(int) string, body, warnBefore string) *schema.Mutation
}

func costWrite(id, body string) *schema.Mutation {
	return schema.NewNamedMutation("document.upsert", "c", id, []byte(body))
}

func costPolicy(op, collection string, defaultTTL int, warnBefore string) *schema.Mutation {
	return schema.NewNamedMutation(op, collection, "", fmt.Appendf(nil, `{"defaultTtl":%d,"warnBefore":%s}`, defaultTTL, warnBefore))
}

var costShapes = []costShape{
	{"writes", func(i int, id func(int) string, body, _ string) *schema.Mutation { return costWrite(id(i), body) }},
	{"touches", func(i int, id func(int) string, body, _ string) *schema.Mutation {
		if i%2 == 0 {
			return costWrite(id(i/2), body)
		}
		return schema.NewNamedMutation("document.touch", "c", id(i/4), nil)
	}},
	{"holds", func(i int, id func(int) string, body, _ string) *schema.Mutation {
		switch op := []string{"", "document.hold", "", "document.release"}[i%4]; op {
		case "":
			return costWrite(id(i/4), body)
		default:
			return schema.NewNamedMutation(op, "c", id(i/4), nil)
		}
	}},
	{"policies that move no deadline", func(i int, id func(int) string, body, warnBefore string) *schema.Mutation {
		switch {
		case i%4 != 3:
			return costWrite(id(i), body)
		case body == `{}`:
			return costPolicy("collection.replace", "c", 600, warnBefore)
		}
		return costPolicy("collection.replace", "c", 600+i, warnBefore)
	}},
	{"collections", func(i int, id func(int) string, body, warnBefore string) *schema.Mutation {
		name := fmt.Sprint("c", i/2)
		if i%2 == 0 {
			return costPolicy("collection.create", name, 600, warnBefore)
		}
		return schema.NewNamedMutation("document.upsert", name, id(i), []byte(body))
	}},
}

// TestSimulationCost: an event takes a bounded number of steps in the expiry orders,
// however many documents wait and were warned of.
func TestSimulationCost(t *testing.T) {
	const most = 40 // steps
	for _, shape := range costShapes {
		for _, body := range []string{`{}`, `{"ttl":600}`} {
			for _, warnBefore := range []string{"null", "5", "2147483647"} {
				for _, apart := range []int64{0, 1} { // seconds
					for ids, id := range map[string]func(i int) string{
						"ascending":  func(i int) string { return fmt.Sprintf("%06d", i) },
						"descending": func(i int) string { return fmt.Sprintf("%06d", costMutations-i) },
						"mixed":      func(i int) string { return fmt.Sprintf("%06d", i*7919%costMutations) },
					} {
						events, steps := costOf(t, apart, warnBefore, func(i int) *schema.Mutation { return shape.next(i, id, body, warnBefore) })
						if steps > most*events {
							t.Errorf("%s, documents %s, warnBefore %s, %d s apart, ids %s: %d events took %d steps",
								shape.name, body, warnBefore, apart, ids, events, steps)
						}
					}
				}
			}
		}
	}
}

// costOf simulates mutations, until nothing is pending, and returns its events and steps.
func costOf(t *testing.T, apart int64, warnBefore string, next func(i int) *schema.Mutation) (events, steps int) {
	t.Helper()
	memory := projections.NewMemory()
	s, err := NewSimulationOver(memory, func(*schema.Event) error { events++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1000_000)
	mutate := func(mu *schema.Mutation) {
		t.Helper()
		if _, err := s.Mutate(now, mu); err != nil {
			t.Fatal(err)
		}
		now += apart * 1000
	}
	mutate(costPolicy("collection.create", "c", 600, warnBefore))
	for i := range costMutations {
		mutate(next(i))
	}
	if err := s.Finish(); err != nil {
		t.Fatal(err)
	}
	return events, memory.Steps()
}
