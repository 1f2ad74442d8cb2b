package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// momentFlags say how tables show moments: from now, unless the user wants the time of day.
type momentFlags struct{ utc, local bool }

func (f *momentFlags) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&f.utc, "utc", false, "show moments in tables as times in UTC, not from now")
	flags.BoolVar(&f.local, "local", false, "show moments in tables as times of this machine's zone, not from now")
}

func (f *momentFlags) check() error {
	if f.utc && f.local {
		return usageErrorf("--utc and --local given: use one of them")
	}
	return nil
}

// isMoment reports whether lapse gives a member of documents in unix seconds.
func isMoment(member string) bool { return member == "_ts" || member == "_deadline" }

// show returns a moment, JSON in unix seconds, for people: "in 9 min", "2 d ago". What is
// no such number, like null, stays as it is.
func (f *momentFlags) show(value string, now time.Time) string {
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil || seconds < 0 || seconds > maxSeconds {
		return value
	}
	at := time.Unix(seconds, 0)
	switch {
	case f.utc:
		return at.UTC().Format("2006-01-02 15:04:05Z")
	case f.local:
		return at.Local().Format("2006-01-02 15:04:05")
	case at.After(now):
		return "in " + largest(at.Sub(now))
	}
	return largest(now.Sub(at)) + " ago"
}

// maxSeconds is the last second of the year 9999.
const maxSeconds = 253402300799

// largest describes a length of time by its largest unit.
func largest(d time.Duration) string {
	return strings.Join(strings.Fields(describeSpan(d))[:2], " ")
}
