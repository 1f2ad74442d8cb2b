package machine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// past has the events on documents in a log, of which it makes stale DocumentExpired:
// repeated, late, early, or of a version replaced, deleted or never there.
type past struct {
	r      *rand.Rand
	events []*schema.Event
	store  *projections.Store // the log folded
}

func (x *past) lives(e *schema.Event) bool {
	c, ok := x.store.Collection(e.Collection)
	if !ok {
		return false
	}
	meta, ok, err := x.store.Meta(c, e.ID)
	return ok && err == nil && meta.Version == e.Previous
}

// stale returns a DocumentExpired that matches no live version.
func (x *past) stale(seq uint64, now int64) *schema.Event {
	for len(x.events) > 0 {
		of := x.events[x.r.IntN(len(x.events))]
		if x.r.IntN(3) == 0 { // a recent event
			of = x.events[max(0, len(x.events)-1-x.r.IntN(20))]
		}
		e := &schema.Event{Type: schema.DocumentExpired, Collection: of.Collection, ID: of.ID, Body: of.Body,
			Previous: schema.Version(of.Seq), Deadline: schema.Deadline{At: of.Time/1000 + 1, TTL: 1, Rule: schema.RuleDocument}}
		switch x.r.IntN(4) {
		case 0:
			e.Previous = of.Previous
		case 1:
			e.Previous = schema.Version(seq + x.r.Uint64N(100)) // a later version
		}
		if of.Type == schema.DocumentExpired && x.r.IntN(2) == 0 {
			copied := *of // an exact copy
			e = &copied
		}
		if e.Previous == 0 || x.lives(e) {
			continue
		}
		e.Seq = seq
		e.Time = []int64{of.Time, now, now + x.r.Int64N(1e12)}[x.r.IntN(3)]
		if x.r.IntN(4) == 0 {
			e.MsgID = fmt.Sprint("m", x.r.IntN(30))
			e.Cause = x.r.Uint64N(1e9)
		}
		return e
	}
	return nil
}

// difference returns the first line in which two texts differ.
func difference(a, b string) string {
	one, other := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(one), len(other)) {
		if one[i] != other[i] {
			return one[i] + "\n" + other[i]
		}
	}
	return fmt.Sprintf("%d lines and %d", len(one), len(other))
}

// TestStaleExpiriesAdopted: stale expiries in the log are like foreign messages. Two
// databases get the same mutations, and at the same places stale expiries or messages
// that are no events: both decide, expire and hold the same.
func TestStaleExpiriesAdopted(t *testing.T) {
	r := stress.Rand(t)
	x := &past{r: r}
	var told [2]strings.Builder // outcomes and events since the last comparison
	var both [2]*Simulation
	var stores [2]*projections.Store
	for i := range both {
		store, err := projections.Open("projection", projections.Options{FS: vfs.NewMem(), NoIndexes: true})
		if err != nil {
			t.Fatal(err)
		}
		stores[i] = store
		if both[i], err = NewSimulationOver(stores[i], func(e *schema.Event) error {
			fmt.Fprintf(&told[i], "%s\n", e.AppendJSON(nil))
			if i == 0 && e.Type.OnDocument() {
				kept := *e
				kept.Body = bytes.Clone(e.Body)
				x.events = append(x.events, &kept)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		defer stores[i].Close()
	}
	x.store = stores[0]
	d := frozenDraw{r}
	at, stale := int64(1_431_857_100_000), uint64(0)
	for events := uint64(stress.Pick(3000, 100_000)); both[0].Machine.Seq() < events; {
		at += []int64{0, 0, 1, 250, 999, 1000, 2500, 7000}[r.IntN(8)]
		mu := d.mutation()
		mu.Recorded = r.IntN(3) == 0
		for i, s := range both {
			copied := *mu
			o, err := s.Mutate(at, &copied)
			if err == nil {
				err = s.Flush()
			}
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&told[i], "%d %s %v\n", o.Code, o.Body, o.Fault)
		}
		if with, without := told[0].String(), told[1].String(); with != without {
			t.Fatalf("after %d stale expiries:\n%s", stale, difference(with, without))
		}
		told[0].Reset()
		told[1].Reset()
		for range r.IntN(3) {
			e := x.stale(both[0].Machine.Seq()+1, at)
			if e == nil {
				continue
			}
			stale++
			for i, e := range []*schema.Event{e, {Seq: e.Seq}} {
				if err := both[i].Machine.adopt([]projections.Fact{{Event: e}}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for i := range both {
		if foreign := stores[i].Cursor().Foreign; foreign != stale {
			t.Errorf("%d stale expiries were adopted, %d counted", stale, foreign)
		}
	}
	if with, without := stores[0].Digest(), stores[1].Digest(); with.Sum != without.Sum {
		t.Errorf("the digest is %v with stale expiries, %v without", with, without)
	}
}
