package schema

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	for text, want := range map[string]string{
		"2015-05-17T10:05:03Z":            "2015-05-17T10:05:03Z",
		"2015-05-17t10:05:03z":            "2015-05-17T10:05:03Z",
		"2015-05-17T10:05:03.25Z":         "2015-05-17T10:05:03.25Z",
		"2015-05-17T10:05:03.1234567891Z": "2015-05-17T10:05:03.123456789Z",
		"2015-05-17T10:05:03-00:00":       "2015-05-17T10:05:03Z",
		"2015-05-17T10:05:03+23:59":       "2015-05-16T10:06:03Z",
		"2016-02-29T00:00:00Z":            "2016-02-29T00:00:00Z",
		// Leap seconds.
		"1990-12-31T23:59:60Z":          "1991-01-01T00:00:00Z",
		"1990-12-31T15:59:60.5-08:00":   "1991-01-01T00:00:00.5Z",
		"2017-01-01T05:29:60+05:30":     "2017-01-01T00:00:00Z",
		"2015-06-30T23:59:60.000-00:00": "2015-07-01T00:00:00Z",
	} {
		if got, err := ParseTime(text); err != nil || got.UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("%q: got %s, %v, want %q", text, got, err, want)
		}
	}
	for _, illegal := range []string{
		"1990-12-31T23:58:60Z", "1990-12-31T22:59:60Z", "1990-12-31T23:59:60-08:00", "1990-12-31T23:59:61Z",
		// What time.Parse accepts.
		"2015-05-17T10:05:03+24:00", "2015-05-17T10:05:03-24:00", "2015-05-17T10:05:03,25Z", "2015-05-17T1:05:03Z",

		"2015-05-17T10:05:03+23:60", "2015-05-17T10:05:03+0100", "2015-05-17T10:05:03", "2015-05-17T10:05Z", "2015-05-17 10:05:03Z", "2015-05-17T24:00:00Z", "2015-02-29T00:00:00Z",
		"2015-05-17T10:05:03.Z", " 2015-05-17T10:05:03Z", "2015-05-17T10:05:03Z\n", "12015-05-17T10:05:03Z", "2015-05-17T10:05:03ſ", "२०१५-05-17T10:05:03Z", "2015-05-17T10:05:03+01:00Z", "",
	} {
		if got, err := ParseTime(illegal); err == nil {
			t.Errorf("%q is read as %s", illegal, got)
		}
	}
}

// TestParseClockMove: a clock moves by whole seconds, to a time, or to what is due next.
func TestParseClockMove(t *testing.T) {
	for body, want := range map[string]string{
		`{"by":0}`: "by 0", `{"by":90.0}`: "by 90", `{"by":"1h30m"}`: "by 5400", `{"by":253402300799}`: "by 253402300799",
		`{"to":"2015-05-17T10:05:03.5Z"}`: "to 1431857103500", `{"to":1431857103}`: "to 1431857103000", `{"to":0}`: "to 0", `{"to":253402300799}`: "to 253402300799000", `{"to":"due"}`: "due",
		`{}`: "use one of them", `{"by":1,"to":1}`: "use one of them", `{"by":1,"to":"due"}`: "use one of them", `{"at":1}`: `unknown member "at"`,
		`{"by":-1}`: "use whole seconds", `{"by":1.5}`: "use whole seconds", `{"by":"soon"}`: "use whole seconds", `{"by":253402300800}`: "use whole seconds",
		`{"to":-1}`: "from 1970 to 9999", `{"to":1.5}`: "from 1970 to 9999", `{"to":253402300800}`: "from 1970 to 9999", `{"to":"1969-12-31T23:59:59Z"}`: "from 1970 to 9999", `{"to":"now"}`: "from 1970 to 9999",
	} {
		got := "due"
		m, fault := ParseClockMove([]byte(body))
		switch {
		case fault != nil:
			got = fault.Message
		case m.By != nil:
			got = fmt.Sprint("by ", *m.By)
		case m.To != nil:
			got = fmt.Sprint("to ", *m.To)
		}
		if !strings.Contains(got, want) || fault == nil && got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}
