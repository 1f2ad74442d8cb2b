package processor

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// The objective is about the expiries of a minute, each counted exactly, and
// about what is overdue.
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

// TestObjectiveInStatus: status tells when nothing expires that should, from the
// deadline on or, where a policy made it due, from then; and afterwards that it
// was late.
func TestObjectiveInStatus(t *testing.T) {
	inBubble(t, func(w *wire) {
		objective := func() schema.LatenessObjective {
			t.Helper()
			var status schema.Status
			w.check(json.Unmarshal(w.want(200, "status", "").body, &status))
			return *status.LatenessObjective
		}
		w.want(201, "collection.create.c", `{"defaultTtl":10}`)
		w.want(201, "collection.create.long", `{"defaultTtl":1000}`)
		w.want(201, "document.create.long.a", `{}`)
		ts := w.tsOf(w.want(201, "document.create.c.a", `{}`))
		if o := objective(); o != (schema.LatenessObjective{Ms: 3000, Share: 0.99, Kept: true}) {
			t.Errorf("at the start: %+v", o)
		}
		sleepUntil(ts+9, 500)
		release := w.holdWriter()
		sleepUntil(ts+10+3, 900)
		if o := objective(); o.OverdueMs != 3000 || !o.Kept {
			t.Errorf("before it is missed: %+v", o)
		}
		sleepUntil(ts+10+4, 0)
		if o := objective(); o.OverdueMs != 4000 || o.Kept || o.Expired != 0 {
			t.Errorf("when it is missed: %+v", o)
		}
		release()
		sleepUntil(ts+10+5, 0)
		if o := objective(); o.OverdueMs != 0 || o.Kept || o.Expired != 1 || o.Late != 1 {
			t.Errorf("afterwards: %+v", o)
		}
		sleepUntil(ts+200, 0)
		w.want(200, "collection.replace.long", `{"defaultTtl":5}`)
		sleepUntil(ts+201, 0)
		if o := objective(); o != (schema.LatenessObjective{Ms: 3000, Share: 0.99, Expired: 1, Kept: true}) {
			t.Errorf("when a policy made it due: %+v", o)
		}
	}, func(o *Options) { o.LatenessObjective = 3 * time.Second })
}
