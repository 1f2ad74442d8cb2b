package peers

import "testing"

// TestHorizon: a standby's query may have missed a renewal only if events were folded
// after the horizon and it judges by a second beyond the horizon.
func TestHorizon(t *testing.T) {
	h := horizon{seq: 7, settled: 100}
	for _, test := range []struct {
		seq    uint64
		now    int64
		missed bool
	}{{8, 101, true}, {8, 100, false}, {7, 101, false}} {
		if got := h.missed(test.seq, test.now); got != test.missed {
			t.Errorf("state %d, second %d: missed %t", test.seq, test.now, got)
		}
	}
}
