package expiry

import (
	"fmt"
	"strings"
	"testing"
)

// log returns a fire that notes "key@seconds after start", and the notes.
func log() (fire func(string, int64), notes *strings.Builder) {
	notes = new(strings.Builder)
	return func(key string, at int64) { fmt.Fprintf(notes, "%s@%d ", key, at-start) }, notes
}

func TestAdvanceOrder(t *testing.T) {
	// The steps of Advance, some to the edges of slots, must not change the order.
	for _, steps := range [][]int64{{10_000}, {100, 10_000}, {63, 64, 4095, 4096, 4999, 5000, 10_000}} {
		w := newKeyed(start)
		fire, notes := log()
		w.Set("e", start+5001)
		w.Set("c", start+5000)
		w.Set("a", start+70)
		w.Set("d", start+5000)
		w.Set("b", start+70)
		w.Set("c", start+5000) // now after d
		w.Set("late", start-1)
		w.Set("later", start)
		w.Set("latest", start)
		w.Set("earliest", start-2)
		for _, now := range steps {
			w.Advance(start+now, fire)
		}
		const want = "earliest@-2 late@-1 later@0 latest@0 a@70 b@70 d@5000 c@5000 e@5001 "
		if notes.String() != want {
			t.Errorf("steps %v fired %s\nwant %s", steps, notes, want)
		}
	}
}

func TestAdvanceOrderAcrossLevels(t *testing.T) {
	w := newKeyed(start)
	fire, notes := log()
	for i, now := range []int64{0, 1000, 4900, 4990, 4999} {
		w.Advance(start+now, fire)
		w.Set(string(rune('a'+i)), start+5000)
	}
	w.Advance(start+5000, fire)
	if want := "a@5000 b@5000 c@5000 d@5000 e@5000 "; notes.String() != want {
		t.Errorf("fired %s\nwant %s", notes, want)
	}
}

func TestAdvanceJumpsOverYears(t *testing.T) {
	w := newKeyed(start)
	fire, notes := log()
	const year = 365 * 24 * 3600
	w.Set("a", start+year)
	w.Set("b", start+200*year)
	w.Set("c", start+300_000_000*year)
	w.Advance(start+1000*year, fire)
	if at, _ := w.Next(); at != start+300_000_000*year {
		t.Errorf("Next: %d", at)
	}
	if want := fmt.Sprintf("a@%d b@%d ", year, 200*year); notes.String() != want {
		t.Errorf("fired %s\nwant %s", notes, want)
	}
}

func TestFireMaySetAndRemove(t *testing.T) {
	w := newKeyed(start)
	fire, notes := log()
	for i, key := range []string{"a", "b", "c", "d", "e"} {
		w.Set(key, start+int64(i))
	}
	w.Advance(start+10, func(key string, at int64) {
		fire(key, at)
		if key != "a" {
			return
		}
		if _, ok := w.At("a"); ok || w.Len() != 4 {
			t.Errorf("a is armed while it fires; Len: %d", w.Len())
		}
		if at, _ := w.Next(); at != start+1 {
			t.Errorf("Next within fire: %d", at)
		}
		w.Set("a", start+3)  // passed: fires in the next call
		w.Remove("b")        // does not fire
		w.Set("c", start+11) // not yet
		w.Set("d", start+3)  // passed: fires in the next call, though due in this one
		w.Set("f", start+10) // passed just now
		if at, _ := w.Next(); at != start+3 {
			t.Errorf("Next within fire: %d", at)
		}
	})
	notes.WriteString("| ")
	w.Advance(start+10, fire)
	notes.WriteString("| ")
	w.Advance(start+11, fire)
	if want := "a@0 e@4 | a@3 d@3 f@10 | c@11 "; notes.String() != want {
		t.Errorf("fired %s\nwant %s", notes, want)
	}
}

func TestFirePanics(t *testing.T) {
	w := newKeyed(start)
	fire, notes := log()
	w.Set("a", start+1)
	w.Set("b", start+2)
	w.Set("c", start+2)
	func() {
		defer func() { notes.WriteString(fmt.Sprint(recover(), " ")) }()
		w.Advance(start+2, func(string, int64) { w.Advance(start+3, fire) })
	}()
	w.Set("d", start+2)
	w.Set("e", start+1)
	before := w.Len()
	w.Advance(start+2, fire)
	const want = "expiry: Advance called from within fire e@1 b@2 c@2 d@2 "
	if notes.String() != want || before != 4 {
		t.Errorf("fired %s\nwant %s; Len before: %d", notes, want, before)
	}
}
