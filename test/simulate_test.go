package test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/test/harness"
)

// event is a line of the log, as in the contract.
type event struct {
	Seq        uint64          `json:"seq"`
	Time       time.Time       `json:"time"`
	Type       string          `json:"type"`
	Collection string          `json:"collection"`
	ID         string          `json:"id"`
	Previous   uint64          `json:"previous"`
	Deadline   int64           `json:"deadline"`
	TTL        int64           `json:"ttl"`
	Rule       string          `json:"rule"`
	Cause      string          `json:"cause"`
	Body       json.RawMessage `json:"body"`
}

func parseEvents(t testing.TB, lines string) (events []event) {
	t.Helper()
	for _, line := range harness.Lines(lines) {
		var e event
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		events = append(events, e)
	}
	return events
}

func countTypes(events []event) map[string]int {
	counts := make(map[string]int)
	for _, e := range events {
		counts[e.Type]++
	}
	return counts
}

// sessionsInput returns the hits after a line that creates their collection.
func sessionsInput(lines []byte, ttl int64) []byte {
	create := fmt.Sprintf(`{"at":"2015-05-17T00:00:00Z","op":"collection.create","collection":"sessions","body":{"defaultTtl":%d}}`+"\n", ttl)
	return append([]byte(create), lines...)
}

// TestSimulateHalfHourSessions: the numbers of events are those counted by hand.
func TestSimulateHalfHourSessions(t *testing.T) {
	t.Parallel()
	_, lines := readHits(t)
	input := sessionsInput(lines, 1800)
	out := harness.Run(t, bytes.NewReader(input), "simulate", "-").OK()
	want := map[string]int{"CollectionCreated": 1, "DocumentCreated": 3052, "DocumentReplaced": 6947, "DocumentExpired": 3052}
	if got := countTypes(parseEvents(t, out)); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if again := harness.Run(t, bytes.NewReader(input), "simulate").OK(); again != out {
		t.Error("the same input gave other bytes")
	}
}

// TestSimulateSessions: every expiry follows from the gaps between hits, for TTLs from a
// second to longer than the log.
func TestSimulateSessions(t *testing.T) {
	t.Parallel()
	hits, lines := readHits(t)
	for _, ttl := range []int64{1, 5, 60, 600, 86400, 1 << 30} {
		t.Run(fmt.Sprint(ttl), func(t *testing.T) {
			out := harness.Run(t, bytes.NewReader(sessionsInput(lines, ttl)), "simulate", "-").OK()
			events := parseEvents(t, out)
			want := sessionsOf(hits, ttl)
			counts := countTypes(events)
			if counts["CollectionCreated"] != 1 || counts["DocumentCreated"] != len(want) || counts["DocumentExpired"] != len(want) ||
				counts["DocumentReplaced"] != len(hits)-len(want) || len(events) != 1+len(hits)+len(want) {
				t.Errorf("%v for %d hits in %d sessions", counts, len(hits), len(want))
			}
			var got []session
			hitsOf := make(map[string]int)
			checkLog(t, events)
			for _, e := range events {
				if e.Type != "DocumentExpired" {
					hitsOf[e.ID]++
					continue
				}
				if e.TTL != ttl || e.Rule != "collection" || !e.Time.Equal(time.Unix(e.Deadline, 0)) {
					t.Fatalf("expired by %s %d, deadline %d at %s", e.Rule, e.TTL, e.Deadline, e.Time)
				}
				got = append(got, session{id: e.ID, hits: hitsOf[e.ID], deadline: e.Deadline, last: string(e.Body)})
				hitsOf[e.ID] = 0
			}
			order := func(a, b session) int { return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.id, b.id)) }
			slices.SortFunc(got, order)
			slices.SortFunc(want, order)
			for i := range want {
				if i >= len(got) || got[i] != want[i] {
					t.Fatalf("session %d is\n%+v, want\n%+v", i, got[i:min(i+1, len(got))], want[i])
				}
			}
		})
	}
}

// checkLog fails the test unless events obey the rules of the contract's section 2 that
// do not depend on the requests.
func checkLog(t testing.TB, events []event) {
	t.Helper()
	type key struct{ collection, id string }
	version := make(map[key]event)
	warned := make(map[key]event) // the last warning of each
	var before event
	for _, e := range events {
		if e.Seq <= before.Seq || e.Time.Before(before.Time) {
			t.Fatalf("event %d at %s comes after event %d at %s", e.Seq, e.Time, before.Seq, before.Time)
		}
		before = e
		k := key{e.Collection, e.ID}
		live, lives := version[k]
		switch e.Type {
		case "DocumentCreated":
			if lives || e.Previous != 0 {
				t.Fatalf("event %d creates %v, which lives since %d", e.Seq, k, live.Seq)
			}
			version[k] = e
			continue
		case "DocumentReplaced", "DocumentDeleted", "DocumentExpired", "DocumentExpiring":
		default:
			continue
		}
		if !lives || e.Previous != live.Seq {
			t.Fatalf("event %d %s ends version %d of %v, the live one is %d", e.Seq, e.Type, e.Previous, k, live.Seq)
		}
		switch e.Type {
		case "DocumentReplaced":
			version[k] = e
			continue
		case "DocumentExpired", "DocumentExpiring":
			if e.Deadline != live.Time.Unix()+e.TTL {
				t.Fatalf("event %d: deadline %d of a version of %d with ttl %d", e.Seq, e.Deadline, live.Time.Unix(), e.TTL)
			}
			if twice := warned[k]; e.Type == "DocumentExpiring" && (e.Time.Unix() >= e.Deadline || twice.Previous == e.Previous && twice.Deadline == e.Deadline) {
				t.Fatalf("event %d warns of deadline %d of %v at %s, before at %d", e.Seq, e.Deadline, k, e.Time, twice.Seq)
			}
			if e.Type == "DocumentExpired" && e.Time.Unix() < e.Deadline {
				t.Fatalf("event %d expires %v at %s, before its deadline %d", e.Seq, k, e.Time, e.Deadline)
			}
		}
		if string(e.Body) != string(live.Body) {
			t.Fatalf("event %d ends %v with %s, its last content is %s", e.Seq, k, e.Body, live.Body)
		}
		if e.Type == "DocumentExpiring" {
			warned[k] = e
			continue
		}
		delete(version, k)
	}
}

func TestSimulateUntil(t *testing.T) {
	t.Parallel()
	_, hits := readHits(t)
	input := sessionsInput(hits, 1800)
	all := harness.Run(t, bytes.NewReader(input), "simulate", "-").OK()
	lines, events := harness.Lines(all), parseEvents(t, all)
	for _, until := range []string{
		"2015-05-16T00:00:00Z",      // before anything happens
		"2015-05-17T10:05:03Z",      // at a hit, which is still judged
		"2015-05-18T12:00:00Z",      //
		"2015-05-18T12:00:00.5Z",    // between two seconds
		"2015-05-18T14:00:00+02:00", // in another zone
		"2015-05-20T21:20:00Z",      // after the last hit, before the last expiry
		"2030-01-01T00:00:00Z",      // after everything
	} {
		t.Run(until, func(t *testing.T) {
			limit, err := time.Parse(time.RFC3339Nano, until)
			if err != nil {
				t.Fatal(err)
			}
			var want strings.Builder
			for i, e := range events {
				if !e.Time.After(limit) {
					want.WriteString(lines[i] + "\n")
				}
			}
			if got := harness.Run(t, bytes.NewReader(input), "simulate", "--until", until).OK(); got != want.String() {
				t.Errorf("got %d events, want the first %d of all", strings.Count(got, "\n"), strings.Count(want.String(), "\n"))
			}
		})
	}
}

// TestSimulateMalformed: a malformed line ends the run with its number, after the events
// of the lines before it; a well-formed line that cannot be applied becomes an event.
func TestSimulateMalformed(t *testing.T) {
	t.Parallel()
	const create = `{"at":"2015-05-17T10:00:00Z","op":"collection.create","collection":"c"}` + "\n"
	at := func(rest string) string { return `{"at":"2015-05-17T10:00:01Z",` + rest + "}\n" }
	for _, test := range []struct{ name, line string }{
		{"not JSON", "poison\n"},
		{"cut short", `{"at":"2015-05-17T10:00:01Z","op":"document.upsert"` + "\n"},
		{"an array", "[]\n"},
		{"no time", `{"op":"document.upsert","collection":"c","id":"a","body":{}}` + "\n"},
		{"a time without zone", `{"at":"2015-05-17T10:00:01","op":"document.upsert","collection":"c","id":"a","body":{}}` + "\n"},
		{"a time that goes back", `{"at":"2015-05-17T09:59:59Z","op":"document.upsert","collection":"c","id":"a","body":{}}` + "\n"},
		{"a time before 1970", `{"at":"1969-05-17T09:59:59Z","op":"document.upsert","collection":"c","id":"a","body":{}}` + "\n"},
		{"two values", at(`"op":"collection.delete","collection":"c"`)[:60] + `}{}` + "\n"},
		{"an id that is a number", at(`"op":"document.upsert","collection":"c","id":7,"body":{}`)},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := harness.Run(t, strings.NewReader(create+test.line+create), "simulate", "-").Exits(1)
			if !strings.Contains(r.Stderr, "line 2") {
				t.Errorf("it says %q, which does not name line 2", r.Stderr)
			}
			if events := parseEvents(t, r.Stdout); len(events) != 1 {
				t.Errorf("got %d events, want the one of line 1", len(events))
			}
		})
	}
	for _, test := range []struct{ name, line, collection, error string }{
		{"unknown op", at(`"op":"document.frobnicate","collection":"c","id":"a"`), "", "bad_request"},
		{"illegal collection", at(`"op":"document.upsert","collection":"-","id":"a","body":{}`), "_invalid", "bad_request"},
		{"no id", at(`"op":"document.upsert","collection":"c","body":{}`), "c", "bad_id"},
		{"no body", at(`"op":"document.upsert","collection":"c","id":"a"`), "c", "bad_request"},
		{"no such collection", at(`"op":"document.upsert","collection":"d","id":"a","body":{}`), "d", "collection_not_found"},
		{"exists", at(`"op":"collection.create","collection":"c"`), "c", "collection_exists"},
	} {
		t.Run(test.name, func(t *testing.T) {
			events := parseEvents(t, harness.Run(t, strings.NewReader(create+test.line), "simulate", "-").OK())
			if len(events) != 2 || events[1].Type != "MutationRejected" || test.collection != "" && events[1].Collection != test.collection ||
				!strings.Contains(string(events[1].Body), `"error":"`+test.error+`"`) {
				t.Errorf("got %+v", events)
			}
		})
	}
	harness.Run(t, nil, "simulate", "no-such-file").Exits(1)
	harness.Run(t, nil, "simulate", "--until", "yesterday").Exits(2)
	harness.Run(t, nil, "simulate", "a", "b").Exits(2)
}
