package monitor

import (
	"fmt"
	"testing"
	"time"
)

// TestStorage: the limit with the least space left is named, with the hours until it is
// reached at the rate since the oldest sample of the last hour.
func TestStorage(t *testing.T) {
	type sample struct {
		minute int
		limits []Limit
	}
	disk := func(free uint64) []Limit { return []Limit{{"disk", 1000, free}} }
	// steady has a sample every minute, between which the disk loses 1 byte.
	var steady []sample
	for i := range 180 {
		steady = append(steady, sample{i, disk(uint64(1000 - i))})
	}
	// faster loses 2 bytes a minute in its last hour.
	faster := append([]sample(nil), steady...)
	for i := range 61 {
		faster = append(faster, sample{180 + i, disk(uint64(821 - 2*i))})
	}
	for _, c := range []struct {
		name    string
		samples []sample
		want    string
	}{
		{"no sample", nil, "none"},
		{"no limit", []sample{{0, nil}}, "log 7, no limit"},
		{"one sample has no rate", []sample{{0, disk(100)}}, "disk 100 of 1000"},
		{"neither have nine minutes", []sample{{0, disk(100)}, {9, disk(90)}}, "disk 90 of 1000"},
		{"ten minutes do", []sample{{0, disk(100)}, {10, disk(90)}}, "disk 90 of 1000, full in 1.5 h"},
		{"nothing is left", []sample{{0, disk(100)}, {10, disk(0)}}, "disk 0 of 1000, full in 0.0 h"},
		{"it stays as it is", []sample{{0, disk(100)}, {30, disk(100)}}, "disk 100 of 1000"},
		{"it was trimmed", []sample{{0, disk(100)}, {30, disk(300)}}, "disk 300 of 1000"},
		{"steady", steady, "disk 821 of 1000, full in 13.7 h"},
		{"the rate is that of the last hour", faster, "disk 701 of 1000, full in 5.8 h"},
		{"the least left comes first, though it lasts longer",
			[]sample{{0, []Limit{{"account", 500, 51}, {"disk", 1000, 360}}}, {60, []Limit{{"account", 500, 50}, {"disk", 1000, 60}}}},
			"account 50 of 500, full in 50.0 h"},
		{"a limit that is new has no rate",
			[]sample{{0, disk(360)}, {60, []Limit{{"log", 20, 10}, {"disk", 1000, 60}}}}, "log 10 of 20"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s storage
			for _, sample := range c.samples {
				s.add(time.Unix(0, 0).Add(time.Duration(sample.minute)*time.Minute), Usage{Log: 7, Limits: sample.limits})
			}
			got := "none"
			if now := s.status(); now != nil {
				got = fmt.Sprintf("log %d, no limit", now.LogBytes)
				if l := now.Limit; l != nil {
					got = fmt.Sprintf("%s %d of %d", l.Name, l.LeftBytes, l.Bytes)
					if l.FullInHours != nil {
						got += fmt.Sprintf(", full in %.1f h", *l.FullInHours)
					}
				}
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if len(s.samples) > 61 {
				t.Errorf("%d samples are kept", len(s.samples))
			}
		})
	}
}
