package audit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/schema"
)

// simulation runs mutations through the processor's machine and keeps the log.
type simulation struct {
	t testing.TB
	*machine.Simulation
	log    []schema.Event
	causes uint64
}

func newSimulation(t testing.TB) *simulation {
	t.Helper()
	s := &simulation{t: t}
	var err error
	s.Simulation, err = machine.NewSimulation(func(e *schema.Event) error {
		kept := *e
		kept.Body = bytes.Clone(e.Body)
		s.log = append(s.log, kept)
		return nil
	})
	must(t, err)
	s.Machine.History = machine.AtHand{Log: simulationHistory{s}}
	return s
}

// simulationHistory implements machine.Log.
type simulationHistory struct{ *simulation }

func (h simulationHistory) Last(name schema.CollectionName, id schema.DocumentID) (uint64, error) {
	for i := len(h.log) - 1; i >= 0; i-- {
		if e := &h.log[i]; e.Type.OnDocument() && e.Collection == name && e.ID == id {
			return e.Seq, nil
		}
	}
	return 0, nil
}

func (h simulationHistory) Event(seq uint64) (*schema.Event, error) {
	for i := range h.log {
		if h.log[i].Seq == seq {
			return &h.log[i], nil
		}
	}
	return nil, nil
}

// mutate applies a mutation of the mutations stream at a time in ms.
func (s *simulation) mutate(at int64, mutation *schema.Mutation) {
	s.t.Helper()
	s.causes++
	mutation.Cause, mutation.Recorded = s.causes, true
	if _, err := s.Mutate(at, mutation); err != nil {
		s.t.Fatal(err)
	}
}

// historyOps are the operations of a history, each as often as it is drawn.
var historyOps = strings.Fields("collection.create collection.delete" + strings.Repeat(" collection.replace", 2) + " document.replace" + strings.Repeat(" document.create", 2) +
	strings.Repeat(" document.delete document.patch", 3) + strings.Repeat(" document.touch document.restore", 4) + strings.Repeat(" document.upsert", 19))

// history returns the log of a random history with few names and short times: policy
// changes, recreated collections and documents, rejections, repeats.
func history(t testing.TB, r *rand.Rand, mutations int) []schema.Event {
	t.Helper()
	s := newSimulation(t)
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	at := int64(1431856800000)
	for i := range mutations {
		switch r.IntN(10) {
		case 0, 1:
			at += r.Int64N(3000)
		case 2:
			at += r.Int64N(120_000) // exceeds the grace
		case 3, 4, 5:
			at += r.Int64N(300)
		}
		collection := pick("carts", "orders", "orders", "orders", "orders")
		op, id, body := pick(historyOps...), "", ""
		if i < 3 {
			op = "collection.create"
		}
		if op[0] == 'd' {
			id = pick("a", "b", "c", "d", "e/ü", "a b")
			switch {
			case op == "document.touch":
			case op == "document.restore":
				body = pick("", "", fmt.Sprintf(`{"version":"%d"}`, r.IntN(i+2)))
			default:
				body = fmt.Sprintf(`{"n":%d%s}`, r.IntN(5), pick("", "", `,"ttl":null`, `,"ttl":-1`, `,"ttl":1`, `,"ttl":2`, `,"ttl":5`, `,"ttl":70`, `,"ttl":0`, `,"ttl":"x"`))
			}
		} else {
			body = fmt.Sprintf(`{"defaultTtl":%s,"previousImages":%s,"warnBefore":%s}`, pick("null", "-1", "-1", "1", "2", "3", "60", "100"), pick("true", "true", "false"),
				pick("null", "null", "1", "2", "40", "90"))
		}
		mutation := schema.NewNamedMutation(op, collection, id, []byte(body))
		mutation.IfMatch = pick("", "", "", "", "", "", "", "", "", "", "*", "3")
		if r.IntN(4) == 0 {
			mutation.MsgID = fmt.Sprint("m", r.IntN(mutations))
		}
		s.mutate(at, mutation)
	}
	var err error
	if r.IntN(2) == 0 {
		err = s.Finish()
	} else {
		err = s.Flush()
	}
	must(t, err)
	return s.log
}

// exported returns the events that lapse export prints of a log.
func exported(log []schema.Event) (events []schema.Event) {
	for _, e := range log {
		if !e.Type.Internal() {
			events = append(events, e)
		}
	}
	return events
}
