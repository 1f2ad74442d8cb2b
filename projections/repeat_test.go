package projections

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/schema"
)

func TestRepeatedWithinTheWindow(t *testing.T) {
	fs := vfs.NewMem()
	s, l := openIn(t, fs), &logbook{now: 1000}
	defer func() { s.Close() }()
	expect := func(id string, now int64, want uint64) {
		t.Helper()
		r, ok, err := s.Repeated(id, now)
		if err != nil || ok != (want != 0) || ok && r.Seq != want {
			t.Errorf("%s at %d repeats %v %t, want %d (%v)", id, now, r, ok, want, err)
		}
	}
	l.write(schema.Event{Type: schema.CollectionCreated, Collection: "orders", MsgID: "m1", Body: []byte(`{}`)})
	l.now = 1100
	l.write(schema.Event{Type: schema.DocumentCreated, Collection: "orders", ID: "a", MsgID: "m2", Body: []byte(`{"id":"a"}`)})
	catchUp(t, s, l)
	for range 2 { // the second time after a restart
		expect("m1", 1000_000, 1)
		expect("m1", 1119_999, 1)
		expect("m1", 1120_000, 0)
		expect("m2", 1120_000, 2)
		expect("m", 1000_000, 0)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openIn(t, fs)
	}
	// A reused id counts from its last use, also when its first use is forgotten.
	l.now = 1130
	l.write(schema.Event{Type: schema.CollectionCreated, Collection: "carts", MsgID: "m1", Body: []byte(`{}`)})
	for l.now = 1131; l.now < 1250; l.now++ {
		l.write(schema.Event{Type: schema.WriterStarted})
		catchUp(t, s, l)
	}
	expect("m1", 1249_999, 3)
	expect("m1", 1250_000, 0)
	expect("m2", 1249_999, 0)
}

// TestRepeatWindowInMilliseconds: the window is in milliseconds, and forgetting in whole
// seconds is never early.
func TestRepeatWindowInMilliseconds(t *testing.T) {
	s, l := open(t), &logbook{now: 1000}
	l.write(schema.Event{Type: schema.CollectionCreated, Collection: "orders", MsgID: "m", Body: []byte(`{}`)})
	l.facts[0].Time = 1000_900
	catchUp(t, s, l)
	l.now = 1120
	for range 3 {
		l.write(schema.Event{Type: schema.WriterStarted})
		l.facts[len(l.facts)-1].Time = 1120_899
		catchUp(t, s, l)
	}
	if r, ok, err := s.Repeated("m", 1120_899); !ok || r.Seq != 1 || err != nil {
		t.Errorf("a millisecond before the end of the window: %v %t (%v)", r, ok, err)
	}
	if _, ok, _ := s.Repeated("m", 1120_900); ok {
		t.Error("remembered after the window")
	}
}

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
			// m0 is used every second, the others once.
			id := "m0"
			if i > 0 {
				id = fmt.Sprint("m", l.now, "-", i)
			}
			l.write(schema.Event{Type: schema.CollectionReplaced, Collection: "orders", MsgID: id, Body: []byte(`{}`)})
		}
		catchUp(t, s, l)
		if l.now == 1300 {
			// The position of forgetting is not kept over a restart.
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openIn(t, fs)
		}
		if most := 2 * perSecond * (120 + 2); l.now%20 == 0 && kept() > most {
			t.Fatalf("%d keys at %d, want at most %d", kept(), l.now, most)
		}
	}
	if r, ok, err := s.Repeated("m0", l.now*1000); !ok || r.Seq != uint64(len(l.facts)-perSecond+1) || err != nil {
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
