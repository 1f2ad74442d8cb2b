package writer

import (
	"testing"

	"github.com/lapsedb/lapse/processor/machine"
)

// TestRenewalsFolded: a folded renewal stays known for the time limit of a query, which
// may have begun before the fold.
func TestRenewalsFolded(t *testing.T) {
	const incarnation, seq, at, seconds = 1, 5, 10, 6
	key := machine.DocumentKey{Incarnation: incarnation, ID: "a"}
	r := &Renewals{last: map[machine.DocumentKey]uint64{key: seq}, all: []renewal{{key: key, seq: seq, deadline: at}}}
	check := func(when string, want bool) {
		t.Helper()
		if got := r.Missed(incarnation, seq-1, at); got != want {
			t.Errorf("%s: missed is %v", when, got)
		}
		if r.Missed(incarnation, seq-1, at-1) || r.Missed(incarnation, seq, at) || r.Missed(incarnation+1, seq-1, at) {
			t.Errorf("%s: missed by a state that has it, by an earlier second or in another collection", when)
		}
	}
	check("in flight", true)
	r.folded(seq, at-2, seconds)
	check("folded", true)
	r.folded(seq+1, at-2+seconds, seconds)
	check("at the time limit of a query", true)
	r.folded(seq+2, at-1+seconds, seconds)
	check("after the time limit", false)
	if len(r.last)+len(r.all)+len(r.recent) != 0 {
		t.Errorf("not removed: %+v", r)
	}
	r.all = []renewal{{key: key, seq: 9, deadline: at + seconds + 1}}
	if r.folded(9, at, seconds); len(r.recent) != 0 {
		t.Error("a renewal that no query can miss is kept")
	}
}
