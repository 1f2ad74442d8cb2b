package main

import (
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
