package writer

import (
	"testing"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// TestLatenessObjective: the objective covers the expiries of the last minute, counted
// exactly, and overdue documents.
func TestLatenessObjective(t *testing.T) {
	const start = 1_000_000_000_000
	l := newLateness(1500 * time.Millisecond)
	want := func(when string, at, oldest int64, want schema.LatenessObjective) {
		t.Helper()
		want.Ms, want.Share = 1500, 0.99
		if got := l.kept(at, oldest); *got != want {
			t.Errorf("%s: %+v, want %+v", when, *got, want)
		}
	}
	want("at the start", start, 0, schema.LatenessObjective{Kept: true})
	for range 99 {
		l.record(start, 1500)
	}
	want("all in time", start, 0, schema.LatenessObjective{Expired: 99, Kept: true})
	l.record(start+20_000, 1501)
	want("one of a hundred late", start+20_000, 0, schema.LatenessObjective{Expired: 100, Late: 1, Kept: true})
	l.record(start+20_000, 1501)
	want("two of them", start+20_000, 0, schema.LatenessObjective{Expired: 101, Late: 2})
	want("when the first are past", start+60_000, 0, schema.LatenessObjective{Expired: 2, Late: 2})
	want("when all are", start+80_000, 0, schema.LatenessObjective{Kept: true})
	want("overdue for a second", start+80_000, start/1000+79, schema.LatenessObjective{OverdueMs: 1000, Kept: true})
	want("for two", start+80_000, start/1000+78, schema.LatenessObjective{OverdueMs: 2000})
	want("due later", start+80_000, start/1000+81, schema.LatenessObjective{Kept: true})
}
