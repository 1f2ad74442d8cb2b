package test

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/internal/model"
	"github.com/lapsedb/lapse/lapsetest"
	"github.com/lapsedb/lapse/test/harness"
)

type event = model.Event

func parseEvents(t testing.TB, lines string) []event {
	t.Helper()
	events, err := model.ParseLog([]byte(lines))
	check(t, err)
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

// TestSimulateSessions: every expiry follows from the gaps between hits, for TTLs from a
// second to longer than the log. For half an hour, the sessions were counted by hand.
// lapsetest makes the same log, and --until a part of it.
func TestSimulateSessions(t *testing.T) {
	t.Parallel()
	hits, lines := readHits(t)
	for _, ttl := range []int64{1, 60, 1800, 1 << 30} {
		t.Run(fmt.Sprint(ttl), func(t *testing.T) {
			out := harness.Run(t, bytes.NewReader(sessionsInput(lines, ttl)), "simulate", "-").OK()
			events := parseEvents(t, out)
			want := sessionsOf(hits, ttl)
			counts := countTypes(events)
			if counts["CollectionCreated"] != 1 || counts["DocumentCreated"] != len(want) || counts["DocumentExpired"] != len(want) ||
				counts["DocumentReplaced"] != len(hits)-len(want) || len(events) != 1+len(hits)+len(want) {
				t.Errorf("%v for %d hits in %d sessions", counts, len(hits), len(want))
			}
			if ttl == 1800 {
				if len(want) != 3052 {
					t.Errorf("%d sessions, want 3052", len(want))
				}
				for _, until := range []string{"2015-05-17T10:05:03Z", "2015-05-18T12:00:00.5Z", "2015-05-20T21:20:00Z"} { // at a hit, in a second, after the last hit
					limit, err := time.Parse(time.RFC3339Nano, until)
					check(t, err)
					n := slices.IndexFunc(events, func(e event) bool { return e.Time.After(limit) })
					if got := harness.Run(t, bytes.NewReader(sessionsInput(lines, ttl)), "simulate", "--until", until).OK(); got != strings.Join(harness.Lines(out)[:n], "\n")+"\n" {
						t.Errorf("until %s there are %d events, want %d", until, strings.Count(got, "\n"), n)
					}
				}
				db := lapsetest.New(t)
				db.Simulate(bytes.NewReader(sessionsInput(lines, ttl)))
				db.Finish()
				if db.Log() != out {
					t.Error("lapsetest makes another log of the hits than simulate")
				}
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

// checkLog fails the test unless events, from the first one on, obey the rules.
func checkLog(t testing.TB, events []event) {
	t.Helper()
	if _, err := model.Of(events); err != nil {
		t.Fatal(err)
	}
}
