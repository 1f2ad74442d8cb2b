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

// ended tracks the versions in a log, and makes stale DocumentExpired: repeated, late,
// early, or of a version replaced, deleted or never there.
type ended struct {
	r    *rand.Rand
	past []*schema.Event           // on documents
	live map[string]schema.Version // by collection and id
}

func newEnded(r *rand.Rand) *ended {
	return &ended{r: r, live: make(map[string]schema.Version)}
}

func liveKey(e *schema.Event) string { return string(e.Collection) + "/" + string(e.ID) }

// saw records an event of the log.
func (x *ended) saw(e *schema.Event) {
	switch e.Type {
	case schema.CollectionDeleted:
		for key := range x.live {
			if strings.HasPrefix(key, string(e.Collection)+"/") {
				delete(x.live, key)
			}
		}
	case schema.DocumentCreated, schema.DocumentReplaced:
		x.live[liveKey(e)] = schema.Version(e.Seq)
	case schema.DocumentDeleted, schema.DocumentExpired:
		delete(x.live, liveKey(e))
	}
	if e.Type.OnDocument() {
		x.past = append(x.past, e)
	}
}

// stale returns a DocumentExpired that matches no live version.
func (x *ended) stale(seq uint64, now int64) *schema.Event {
	for len(x.past) > 0 {
		of := x.past[x.r.IntN(len(x.past))]
		if x.r.IntN(3) == 0 { // a recent event
			of = x.past[max(0, len(x.past)-1-x.r.IntN(20))]
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
		if live, lives := x.live[liveKey(e)]; e.Previous == 0 || lives && e.Previous == live {
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
	x := newEnded(r)
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
			if i == 0 {
				kept := *e
				kept.Body = bytes.Clone(e.Body)
				x.saw(&kept)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		defer stores[i].Close()
	}
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
