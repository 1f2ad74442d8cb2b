package audit

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// auditOf audits events with almost no state cached in memory.
func auditOf(t testing.TB, options Options, events []schema.Event) Report {
	t.Helper()
	options.FS = vfs.NewMem()
	a, err := New(options)
	must(t, err)
	a.state.generation = 2
	for i := range events {
		e := events[i]
		e.Body = bytes.Clone(e.Body)
		if e.Type == schema.NoEvent {
			a.Foreign(e.Seq, fmt.Errorf("it is none"))
		} else if err := a.Event(&e); err != nil {
			t.Fatal(err)
		}
		clear(e.Body) // the auditor must not keep the body
	}
	report, err := a.Finish()
	must(t, err)
	must(t, a.Close())
	return report
}

func wantClean(t testing.TB, what string, log []schema.Event, r Report) {
	t.Helper()
	if r.Count() == 0 {
		return
	}
	for i := range log {
		t.Logf("%s", log[i].AppendJSON(nil))
	}
	for _, f := range r.Findings {
		t.Errorf("%s: %d %s %s/%s: %s", what, f.Seq, f.Rule, f.Collection, f.ID, f.Message)
	}
	t.FailNow()
}

// TestValidLogs: the log of any history has no findings, whole, cut off anywhere, or
// without its beginning, as a stream or exported.
func TestValidLogs(t *testing.T) {
	r := stress.Rand(t)
	for range stress.Pick(150, 20_000) {
		log := history(t, r, 10+r.IntN(150))
		whole := auditOf(t, Options{Stream: true}, log)
		wantClean(t, "whole", log, whole)
		counted := uint64(0)
		for _, e := range log {
			if e.Type == schema.DocumentExpired {
				counted++
			}
		}
		if whole.Expired != counted || !whole.Complete || whole.Events != uint64(len(log)) {
			t.Fatalf("%+v, %d events, %d expired", whole, len(log), counted)
		}
		wantClean(t, "exported", log, auditOf(t, Options{}, exported(log)))

		cut := r.IntN(len(log) + 1)
		wantClean(t, "its first part", log[:cut], auditOf(t, Options{Stream: true}, log[:cut]))
		wantClean(t, "its first part, exported", log[:cut], auditOf(t, Options{}, exported(log[:cut])))
		wantClean(t, "its second part", log[cut:], auditOf(t, Options{Stream: true, Partial: true}, log[cut:]))
		wantClean(t, "its second part, exported", log[cut:], auditOf(t, Options{Partial: true}, exported(log[cut:])))
	}
}

// TestMissingBeginning: a stream that begins above 1 is a finding unless an event says why, by a
// trim or a snapshot.
func TestMissingBeginning(t *testing.T) {
	event := func(seq uint64, kind schema.EventType, body string) schema.Event {
		return schema.Event{Seq: seq, Time: beginning, Type: kind, Collection: schema.InternalCollection, Body: []byte(body)}
	}
	for name, c := range map[string]struct {
		log  []schema.Event
		lost bool
	}{
		"lost":                   {[]schema.Event{event(5, schema.WriterPresent, ""), event(6, schema.WriterStarted, `{"writer":"w"}`)}, true},
		"trimmed":                {[]schema.Event{event(5, schema.WriterPresent, ""), event(6, schema.LogTrimmed, `{"first":5}`)}, false},
		"trimmed, not so far":    {[]schema.Event{event(5, schema.WriterPresent, ""), event(6, schema.LogTrimmed, `{"first":4}`)}, true},
		"trimmed more than once": {[]schema.Event{event(5, schema.LogTrimmed, `{"first":3}`), event(6, schema.LogTrimmed, `{"first":5}`)}, false},
		"begun from a snapshot":  {[]schema.Event{event(5, schema.WriterStarted, `{"writer":"w"}`), event(6, schema.WriterPresent, "")}, false},
		"used again":             {[]schema.Event{event(1, schema.WriterStarted, `{"writer":"w"}`), event(2, schema.WriterStarted, `{"writer":"v","reused":9}`)}, true},
	} {
		if found := auditOf(t, Options{Stream: true}, c.log).Found[Sequence]; (found == 1) != c.lost || found > 1 {
			t.Errorf("%s: %d findings", name, found)
		}
	}
}

// TestDueWithoutWriter: a version that came due while no writer ran is not missing just after a
// writer started or resumed; a WriterPresent does not excuse it.
func TestDueWithoutWriter(t *testing.T) {
	for last, missing := range map[schema.EventType]uint64{
		schema.WriterStarted: 0, schema.WriterResumed: 0, schema.WriterPresent: 1, schema.LogPadded: 1,
	} {
		r := auditOf(t, Options{Stream: true}, []schema.Event{
			{Seq: 1, Time: beginning, Type: schema.CollectionCreated, Collection: "c", Body: []byte(`{"id":"c","defaultTtl":10}`)},
			{Seq: 2, Time: beginning, Type: schema.DocumentCreated, Collection: "c", ID: "a", Body: []byte(`{"id":"a"}`)},
			{Seq: 3, Time: beginning + 200_000, Type: last, Collection: schema.InternalCollection},
		})
		if r.Lost != missing || r.Pending != 1-missing {
			t.Errorf("before a %s: %+v", last, r)
		}
	}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
