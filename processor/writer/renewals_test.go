package writer

import (
	"testing"

	"github.com/lapsedb/lapse/processor/machine"
)

// TestRenewalsFolded: a query that looked at what was there before a renewal
// learns of it for as long as it may take, also when it is folded meanwhile.
func TestRenewalsFolded(t *testing.T) {
	const incarnation, seq, at, seconds = 1, 5, 10, 6
	key := machine.DocumentKey{Incarnation: incarnation, ID: "a"}
	r := &Renewals{Last: map[machine.DocumentKey]uint64{key: seq}, All: []renewal{{key: key, seq: seq, at: at}}}
	check := func(when string, want bool) {
		t.Helper()
		if got := r.Missed(incarnation, seq-1, at); got != want {
			t.Errorf("%s it is missed: %v", when, got)
		}
		if r.Missed(incarnation, seq-1, at-1) || r.Missed(incarnation, seq, at) || r.Missed(incarnation+1, seq-1, at) {
			t.Errorf("%s it is missed by who does not miss it", when)
		}
	}
	check("under way", true)
	r.folded(seq, at-2, seconds)
	check("when it is folded", true)
	r.folded(seq+1, at-2+seconds, seconds)
	check("as long as a query may take", true)
	r.folded(seq+2, at-1+seconds, seconds)
	check("afterwards", false)
	if len(r.Last)+len(r.All)+len(r.recent) != 0 {
		t.Errorf("it is kept: %+v", r)
	}
	r.All = []renewal{{key: key, seq: 9, at: at + seconds + 1}}
	if r.folded(9, at, seconds); len(r.recent) != 0 {
		t.Error("what no query can miss is kept")
	}
}
