package projections

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/schema"
)

// TestFoldForgetsMessageIDs: folds drop all ids past the window, however many, so the projection
// does not grow with the number of message ids ever used.
func TestFoldForgetsMessageIDs(t *testing.T) {
	fs := vfs.NewMem()
	s, l := openIn(t, fs), &logbook{now: 1000}
	defer func() { s.Close() }()
	kept := func() int { return len(contents(t, s, "MCSDEHX")) }
	l.collection(schema.CollectionCreated, "orders", `{}`)
	catchUp(t, s, l)
	const perSecond = 5
	for l.now < 1600 {
		l.now++
		for i := range perSecond {
			// m0 is used in every seventh second, the others once. In the last one, an
			// earlier use of m0 is forgotten.
			id := fmt.Sprint("m", l.now, "-", i)
			if i == 0 && l.now%7 == 1 {
				id = "m0"
			}
			l.write(schema.Event{Type: schema.CollectionReplaced, Collection: "orders", MsgID: id, Body: []byte(`{}`)})
		}
		catchUp(t, s, l)
		if l.now == 1300 {
			// The position of forgetting is not kept over a restart.
			must(t, s.Close())
			s = openIn(t, fs)
		}
		if most := 2 * perSecond * (120 + 2); l.now%20 == 0 && kept() > most {
			t.Fatalf("%d keys at %d, want at most %d", kept(), l.now, most)
		}
	}
	if r, ok, err := s.Repeated("m0", l.now*1000); !ok || r.Seq != uint64(len(l.facts)-4*perSecond+1) || err != nil {
		t.Errorf("m0 repeats %v %t (%v)", r, ok, err)
	}
	// After a pause, a few folds drop the backlog: each at most two ids per
	// fact.
	l.now = 5000
	for range 400 {
		l.collection(schema.CollectionReplaced, "orders", `{}`)
		l.collection(schema.CollectionReplaced, "orders", `{}`)
		catchUp(t, s, l)
	}
	if n := kept(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}
