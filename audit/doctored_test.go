package audit

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/stress"
)

// TestDoctoredLogs spoils one thing in the log of a random history. The audit has a
// finding if the naive audit has one or the fault cannot go unseen, and none if the naive
// audit has none.
func TestDoctoredLogs(t *testing.T) {
	r := stress.Rand(t)
	seen := make(map[Rule]int)
	for range stress.Pick(150, 10_000) {
		whole := history(t, r, 10+r.IntN(60))
		for range 10 {
			log, stream := slices.Clone(whole), r.IntN(2) == 0
			if !stream {
				log = exported(log)
			}
			if len(log) == 0 {
				continue
			}
			what, spoilt, sure := doctor(r, log)
			many := strings.Contains(what, "CollectionCreated") || strings.Contains(what, "CollectionReplaced") // a changed policy affects many events
			report := auditOf(t, Options{Stream: stream}, spoilt)
			rule, at := naive(spoilt, stream)
			fail := func(format string, args ...any) {
				t.Helper()
				for i := range spoilt {
					t.Logf("%s", spoilt[i].AppendJSON(nil))
				}
				for _, f := range report.Findings {
					t.Logf("found: %d %s %s", f.Seq, f.Rule, f.Message)
				}
				t.Fatalf("%s (stream %t): %s", what, stream, fmt.Sprintf(format, args...))
			}
			switch {
			case stream && spoilt[0].Seq != 1:
				// The naive audit needs a log with its beginning.
			case rule == "" && report.Count() > 0:
				fail("there are findings")
			case rule == Collection && report.Found[Rejected] > 0:
				// The rejection was reported first, so the collection is assumed.
			case rule != "" && report.Found[rule] == 0:
				fail("no finding that says %s (%d)", rule, at)
			case rule != "" && !slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Seq == at || f.Rule == Missing }):
				fail("no finding at %d (%s)", at, rule)
			case sure && report.Count() == 0:
				fail("there is no finding, and there has to be one")
			case report.Count() > 12 && !many:
				fail("%d findings for one fault", report.Count())
			}
			for rule := range report.Found {
				seen[rule]++
			}
		}
	}
	for _, rule := range []Rule{Foreign, Sequence, Time, Cause, Collection, Life, Previous, Missing, Double, Stale, Early, Deadline, TTL, ByRule, Body, Restored, Unwarned, WarnedTwice, EarlyWarn, Rejected} {
		if seen[rule] == 0 {
			t.Errorf("nothing was spoilt that is against %s", rule)
		}
	}
	t.Log(seen)
}

// doctor spoils one thing and describes it. sure reports whether it cannot go unseen.
func doctor(r *rand.Rand, log []schema.Event) (what string, spoilt []schema.Event, sure bool) {
	i := r.IntN(len(log))
	if r.IntN(3) > 0 { // prefer expiries and warnings
		for range 20 {
			if j := r.IntN(len(log)); log[j].Type.HasDeadline() {
				i = j
				break
			}
		}
	}
	if j := slices.IndexFunc(log, func(l schema.Event) bool { return l.Restored != 0 }); j >= 0 && r.IntN(6) == 0 {
		i = j
	}
	e := &log[i]
	what = fmt.Sprintf("%d %s: ", e.Seq, e.Type)
	expired, document := e.Type.HasDeadline(), e.Type.OnDocument()
	// later reports whether the document or collection has a later event.
	later := slices.ContainsFunc(log[i+1:], func(l schema.Event) bool {
		return l.Collection == e.Collection && l.Type == schema.CollectionCreated || e.Type != schema.MutationRejected && l.Collection == e.Collection && l.ID == e.ID && l.Type.OnDocument() == document && l.Type != schema.MutationRejected
	})
	recreated := slices.ContainsFunc(log[i+1:], func(l schema.Event) bool {
		return l.Collection == e.Collection && l.Type == schema.CollectionCreated
	})
	if e.Restored != 0 && r.IntN(2) == 0 {
		e.Restored = schema.Version(1 + r.Uint64N(e.Seq+3))
		return what + fmt.Sprintf("restored %d", e.Restored), log, false
	}
	switch r.IntN(14) {
	case 0:
		sure = document && later && !recreated && e.Type != schema.DocumentExpiring // a missing warning may be invisible
		return what + "dropped", slices.Delete(log, i, i+1), sure
	case 1:
		return what + "twice", slices.Insert(log, i, *e), true
	case 2:
		if i+1 < len(log) {
			log[i], log[i+1] = log[i+1], log[i]
			return what + "swapped with the next", log, true
		}
	case 3:
		d := 1 + r.Int64N(5000)
		sure = i > 0 && e.Time-d < log[i-1].Time
		e.Time -= d
		return fmt.Sprintf("%stime %d ms less", what, d), log, sure
	case 4:
		// Moved up, with a new time, and renumbered, as a stream has no free sequences.
		j := r.IntN(i + 1)
		moved := *e
		if j > 0 {
			moved.Time = log[j-1].Time
		}
		log = slices.Insert(slices.Delete(log, i, i+1), j, moved)
		return fmt.Sprintf("%smoved to place %d", what, j), renumber(log), false
	case 5:
		// Copied to a later place.
		j := i + 1 + r.IntN(len(log)-i)
		again := *e
		again.Cause = 0
		again.Time = log[j-1].Time
		return fmt.Sprintf("%scopied to place %d", what, j), renumber(slices.Insert(log, j, again)), expired
	case 6:
		if expired {
			d := int64(1 - 2*r.IntN(2))
			e.Deadline.At += d
			return fmt.Sprintf("%sdeadline %+d", what, d), log, true
		}
	case 7:
		if expired {
			e.Deadline.TTL++
			return what + "ttl one more", log, true
		}
	case 8:
		if expired {
			e.Deadline.Rule = schema.RuleDocument + schema.RuleCollection - e.Deadline.Rule
			return what + "the other rule", log, true
		}
	case 9:
		if e.Previous != 0 {
			e.Previous += schema.Version(1 + r.IntN(3))
			if r.IntN(2) == 0 {
				e.Previous = schema.Version(1 + r.IntN(int(e.Previous)-1))
				return what + "maybe another previous", log, false
			}
			return what + "a later previous", log, true
		}
	case 10:
		switch {
		case e.Type == schema.MutationRejected || e.Type.Internal():
			text := string(e.Body)
			e.Body = []byte(strings.NewReplacer("document_not_found", "document_exists", "document_exists", "document_not_found",
				"collection_not_found", "collection_exists", "collection_exists", "collection_not_found").Replace(text))
			return what + "another error", log, false
		case len(e.Body) == 0 && document:
			e.Body = []byte(`{"id":"x"}`)
			return what + "a body", log, true
		case r.IntN(3) == 0 && e.Type != schema.DocumentCreated && e.Type != schema.DocumentReplaced:
			e.Body = nil
			return what + "no body", log, true
		}
		var body map[string]any
		_ = json.Unmarshal(e.Body, &body)
		switch key := []string{"id", "ttl", "defaultTtl", "n", "_ts"}[r.IntN(5)]; {
		case !document && key != "defaultTtl":
		case key == "id":
			delete(body, "id")
			sure = document
		default:
			body[key] = 1 + r.IntN(9)
		}
		e.Body, _ = json.Marshal(body)
		return what + "body " + string(e.Body), log, sure
	case 11:
		if e.Cause != 0 {
			if e.Cause--; e.Cause == 0 {
				e.Cause = 1 << 40
			}
			sure = slices.ContainsFunc(log[:i], func(l schema.Event) bool { return l.Cause == e.Cause })
			return fmt.Sprintf("%scause %d", what, e.Cause), log, sure
		}
		if expired {
			e.Cause = 1 << 40
			return what + "a cause", log, true
		}
	case 12:
		types := []schema.EventType{schema.DocumentCreated, schema.DocumentReplaced, schema.DocumentDeleted, schema.NoEvent}
		if document && len(e.Body) > 0 {
			was := e.Type
			e.Type = types[r.IntN(len(types))]
			return fmt.Sprintf("%sis %s", what, e.Type), log, e.Type == schema.NoEvent || was == schema.DocumentCreated && e.Type != was
		}
	case 13:
		if document {
			e.ID, e.Collection = []schema.DocumentID{"a", "b", "new"}[r.IntN(3)], []schema.CollectionName{"carts", "orders", "new"}[r.IntN(3)]
			return fmt.Sprintf("%sis of %s/%s", what, e.Collection, e.ID), log, false
		}
	}
	return "nothing", log, false
}

// renumber numbers events by their places, and updates the sequences of the versions that
// they end or restore.
func renumber(log []schema.Event) []schema.Event {
	to := make(map[uint64]uint64)
	for i, e := range log {
		if _, ok := to[e.Seq]; !ok {
			to[e.Seq] = uint64(i + 1)
		}
	}
	for i := range log {
		log[i].Seq = uint64(i + 1)
		if n, ok := to[uint64(log[i].Previous)]; ok && log[i].Previous != 0 {
			log[i].Previous = schema.Version(n)
		}
		if n, ok := to[uint64(log[i].Restored)]; ok && log[i].Restored != 0 {
			log[i].Restored = schema.Version(n)
		}
	}
	return log
}
