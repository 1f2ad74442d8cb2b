package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestMomentsForPeople: tables show moments from now or as a time; anything else as it is.
func TestMomentsForPeople(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	defer func(zone *time.Location) { time.Local = zone }(time.Local)
	time.Local = time.FixedZone("", 3600)
	for _, test := range []struct {
		flags momentFlags
		value string
		want  string
	}{
		{momentFlags{}, "1800000540", "in 9 min"},
		{momentFlags{}, "1800000001", "in 1 s"},
		{momentFlags{}, "1800000000", "0 s ago"},
		{momentFlags{}, "1799990000", "2 h ago"},
		{momentFlags{}, "0", "20833 d ago"},
		{momentFlags{utc: true}, "1800000540", "2027-01-15 08:09:00Z"},
		{momentFlags{local: true}, "1800000540", "2027-01-15 09:09:00"},
		{momentFlags{}, "null", "null"},
		{momentFlags{}, "-1", "-1"},
		{momentFlags{utc: true}, "253402300800", "253402300800"},
		{momentFlags{}, `"soon"`, `"soon"`},
	} {
		if got := test.flags.show(test.value, now); got != test.want {
			t.Errorf("%+v of %s: %q, want %q", test.flags, test.value, got, test.want)
		}
	}
}

// TestMomentsInTables: a terminal gets moments for people, and JSON has seconds.
func TestMomentsInTables(t *testing.T) {
	s := newStandin(t)
	s.answer("collection.get.orders", 200, `{"id":"orders"}`, false)
	s.answer("query.orders", 200, `{"documents":[{"id":"a","_ts":1431857103,"_deadline":1431860703,"at":1431860703}]}`, false)
	for command, want := range map[string][2]string{
		"due orders --utc":            {"2015-05-17 10:05:03Z  2015-05-17 11:05:03Z  1431860703", ""},
		"due orders":                  {" d ago", ""},
		"document list orders --json": {`"_deadline":1431860703`, ""},
		"query orders --utc --local":  {"", "--utc and --local given: use one of them"},
	} {
		var out, errs bytes.Buffer
		a := newApp(strings.NewReader(""), &out, &errs)
		a.isTerminal, a.width, a.colour = func(any) bool { return true }, func(any) int { return 200 }, false
		a.run(t.Context(), append(strings.Fields(command), "--server", s.server.ClientURL()))
		if !strings.Contains(out.String(), want[0]) || !strings.Contains(errs.String(), want[1]) {
			t.Errorf("lapse %s: %s%s", command, &out, &errs)
		}
	}
}
