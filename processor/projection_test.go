package processor

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// TestProjectionsAreAlike: a machine over Pebble and one over memory decide the same,
// byte for byte, in one random history with late commits, aborts and small steps of the
// sweep.
func TestProjectionsAreAlike(t *testing.T) {
	store, err := projections.Open("projection", projections.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20, MemTableBytes: 1 << 20, NoIndexes: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	a := &alike{t: t, frozenDraw: frozenDraw{stress.Rand(t)}, now: 1_431_857_100_000}
	for i, p := range []machine.Projection{store, projections.NewMemory()} {
		m, err := machine.NewMachine(p)
		if err != nil {
			t.Fatal(err)
		}
		a.machines[i] = m
	}
	for events := uint64(stress.Pick(5000, 200_000)); a.machines[0].Seq() < events; {
		a.step()
	}
	a.now += 1 << 40 // past every deadline
	for more := true; more; {
		a.all()
		more = a.expire(1000)
	}
	if a.expired < 100 || a.rejected < 100 {
		t.Errorf("%d events expire documents and %d reject, too few to say much", a.expired, a.rejected)
	}
}

type alike struct {
	t *testing.T
	frozenDraw
	machines [2]*machine.Machine // over a Store, over a Memory
	now      int64               // ms
	cause    uint64

	expired, rejected int
}

// both calls one machine, then the other, and compares results and states.
func (a *alike) both(call func(*machine.Machine) (said string, err error)) string {
	a.t.Helper()
	var all [2]string
	for i, m := range a.machines {
		said, err := call(m)
		if err != nil {
			a.t.Fatal(err)
		}
		second, ok := m.NextDue()
		all[i] = fmt.Sprintf("%s\nat %d of %d, %d pending since %d, %d folded, due %d %t", said,
			m.Time(), m.EndTime(), m.Pending(), len(m.Taken()), m.Folded(), second, ok)
	}
	if all[0] != all[1] {
		a.t.Fatalf("over the store %s\nand over the memory %s", all[0], all[1])
	}
	return all[0]
}

// take takes the pending events of both machines and compares them.
func (a *alike) take() {
	of, in := a.machines[0].Take(), a.machines[1].Take()
	if len(of) != len(in) {
		a.t.Fatalf("%d events are taken from over the store, %d from over the memory", len(of), len(in))
	}
	for i := range of {
		if !reflect.DeepEqual(of[i], in[i]) {
			a.t.Fatalf("over the store\n%s\n%+v\nover the memory\n%s\n%+v", of[i].AppendJSON(nil), of[i], in[i].AppendJSON(nil), in[i])
		}
		switch of[i].Type {
		case schema.DocumentExpired:
			a.expired++
		case schema.MutationRejected:
			a.rejected++
		}
	}
}

// commit commits n of the taken events.
func (a *alike) commit(n int) {
	seq := a.machines[0].Folded() + uint64(n)
	a.both(func(m *machine.Machine) (string, error) { return "", m.Commit(seq) })
}

// all takes and commits all events.
func (a *alike) all() {
	a.take()
	a.commit(len(a.machines[0].Taken()))
}

func (a *alike) expire(limit int) (more bool) {
	a.both(func(m *machine.Machine) (said string, err error) {
		more, err = m.Expire(a.now, limit)
		return fmt.Sprint(more), err
	})
	return more
}

func (a *alike) decide(mu *schema.Mutation) {
	for again := true; again; {
		a.both(func(m *machine.Machine) (string, error) {
			copied := *mu
			o, err := m.Decide(a.now, &copied)
			again = o.Again
			return fmt.Sprintf("%d %s %v %d %d", o.Code, o.Body, o.Fault, o.Seq, o.Repeat), err
		})
		if again {
			a.all()
		}
	}
}

func (a *alike) step() {
	switch n := a.IntN(100); {
	case n < 60:
		mu := a.mutation()
		if a.IntN(3) == 0 {
			a.cause++
			mu.Recorded, mu.Cause = true, a.cause
		}
		a.decide(mu)
	case n < 61: // many in one second
		collection, ttl := a.collection(), a.pick("null", "3")
		for range 200 {
			id := fmt.Sprint("many", a.IntN(1000))
			a.decide(schema.NewNamedMutation("document.upsert", collection, id, []byte(`{"ttl":`+ttl+`}`)))
		}
	case n < 65:
		a.batch()
	case n < 75:
		a.now += []int64{1, 250, 999, 1000, 2500, 7000, 119_999}[a.IntN(7)]
	case n < 85:
		a.expire(1 + a.IntN(3)*a.IntN(50))
	case n < 88:
		a.take()
	case n < 93:
		a.commit(a.IntN(len(a.machines[0].Taken()) + 1))
	case n < 99:
		a.all()
	default:
		a.both(func(m *machine.Machine) (string, error) { return "", m.Abort() })
	}
}

func (a *alike) batch() {
	var operations []string
	for range 1 + a.IntN(12) {
		operations = append(operations, fmt.Sprintf(`{"op":"%s","id":"d%d","body":%s}`, a.pick("upsert", "upsert", "create", "patch", "get"), a.IntN(50), a.document()))
	}
	collection, envelope := a.collection(), fmt.Sprintf(`{"operations":[%s],"atomic":%t}`, strings.Join(operations, ","), a.IntN(2) == 0)
	a.both(func(m *machine.Machine) (string, error) {
		b, fault := schema.ParseBatch(collection, []byte(envelope))
		if fault != nil {
			return "", fault
		}
		run := machine.NewBatchRun(b, 1<<20)
		o, err := m.DecideBatch(a.now, run, math.MaxInt)
		return fmt.Sprintf("%d %s %d %t %d", o.Code, o.Body, o.Seq, o.Again, run.First), err
	})
}
