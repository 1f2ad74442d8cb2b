package main

import (
	"regexp"
	"slices"
	"testing"
	"time"
)

func TestDescribeSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		59*time.Minute + 12*time.Second:         "59 min 12 s",
		59*time.Minute + 11100*time.Millisecond: "59 min 12 s",
		time.Millisecond:                        "1 s",
		-time.Second:                            "0 s",
		time.Minute:                             "1 min",
		time.Hour:                               "1 h",
		time.Hour + 5*time.Second:               "1 h",
		26*time.Hour + 5*time.Second:            "1 d 2 h",
		2000000000 * time.Second:                "23148 d 3 h",
	} {
		if got := describeSpan(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

// TestDeadlinesOfOne: --deadlines adds the members that a query has, and nothing else does.
func TestDeadlinesOfOne(t *testing.T) {
	s := newStandin(t)
	for _, op := range []string{"get", "create", "upsert", "replace", "patch", "touch", "restore", "hold", "release"} {
		s.answer("document."+op+".c.a", 200, `{"id":"a","_ts":5,"_etag":"7"}`, false)
		s.expires(t, "document."+op+".c.a", "100h")
		command := []string{"document", op, "c", "a"}
		if slices.Contains([]string{"create", "upsert", "replace", "patch"}, op) {
			command = append(command, "{}")
		}
		for _, more := range [][]string{nil, {"--deadlines"}} {
			code, out := lapse(t, slices.Concat(command, more, []string{"--server", s.server.ClientURL()})...)
			got := regexp.MustCompile(`\d{10}`).ReplaceAllString(out, "D")
			want := `{"id":"a","_ts":5,"_etag":"7"}` + "\n"
			if more != nil {
				want = `{"id":"a","_ts":5,"_etag":"7","_deadline":D,"_rule":"collection"}` + "\n"
			}
			if code != exitDone || got != want {
				t.Errorf("lapse %q %q: exit %d, %s", command, more, code, got)
			}
		}
	}
}
