package writer

import (
	"testing"
	"time"
)

// TestShareSteers: while many requests come during a slice, slices shrink to the least; while
// few come they grow to the most. Below that one slice is in flight at a time, with a short
// rest after it, whatever its append took.
func TestShareSteers(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var s share
	asks := uint64(1000) // before the first slice
	came := func(requests uint64) int {
		asks += requests
		return s.steer(now, asks)
	}
	if got := came(5000); got != mostSlice {
		t.Errorf("a first slice of %d", got)
	}
	if s.wait(now, mostSlice) != 0 || s.wait(now, mostSlice+1) <= 0 {
		t.Error("at the most there are not two slices in flight")
	}
	before := mostSlice
	for range 20 {
		got := came(tolerable + 1)
		if got >= before && got != leastSlice {
			t.Errorf("a slice of %d after %d", got, before)
		}
		before = got
	}
	if before != leastSlice {
		t.Errorf("the least slice is %d", before)
	}
	for took, rest := range map[time.Duration]time.Duration{time.Millisecond: time.Millisecond / restPart, time.Hour: mostRest} {
		s.began = now
		if s.wait(now, 1) <= 0 {
			t.Error("two slices in flight")
		}
		now = now.Add(took)
		s.folded(now)
		if got := s.wait(now, 0); got != rest {
			t.Errorf("a rest of %s after %s", got, took)
		}
		if now = now.Add(rest); s.wait(now, 0) != 0 {
			t.Errorf("more than %s of rest", rest)
		}
	}
	for range 100 {
		got := came(tolerable)
		if got <= before && got != mostSlice {
			t.Errorf("a slice of %d after %d", got, before)
		}
		before = got
	}
	if before != mostSlice || s.wait(now, 1) != 0 {
		t.Errorf("in the end %d a slice", before)
	}
	came(1000)
	now = now.Add(time.Second)
	if got := came(2500); got >= mostSlice {
		t.Errorf("a slice of %d where 2,500 requests come a second", got)
	}
	now = now.Add(time.Second)
	if got := came(100); got != mostSlice {
		t.Errorf("a slice of %d where 100 requests came since the last second", got)
	}
}
