package schema

import (
	"fmt"
	"strings"
	"time"
)

// ParseTime reads a time as in RFC 3339. time.Parse accepts more (an hour of one digit, a
// comma before the fraction, offsets of 24 hours or 60 minutes) and refuses small letters
// and leap seconds.
//
// A leap second, 23:59:60 in UTC whatever the offset, is the second after it, 00:00:00
// of the next day, as in POSIX: unix time has no place for it. The day is not checked,
// since only a table that ends says which days have a leap second.
func ParseTime(text string) (time.Time, error) {
	const seconds = len("2015-05-17T10:05:")
	fault := func() (time.Time, error) {
		return time.Time{}, fmt.Errorf("%.40q is not a time like 2015-05-17T10:05:03Z", text)
	}
	upper := strings.ToUpper(text)
	if len(upper) <= seconds+2 || upper[seconds-1] != ':' || strings.Contains(upper, ",") {
		return fault()
	}
	if zone := upper[len(upper)-len("+23:59"):]; (zone[0] == '+' || zone[0] == '-') && (zone[1:3] > "23" || zone[4:] > "59") {
		return fault()
	}
	leap := upper[seconds:seconds+2] == "60"
	if leap {
		upper = upper[:seconds] + "59" + upper[seconds+2:]
	}
	t, err := time.Parse(time.RFC3339Nano, upper)
	if err != nil {
		return fault()
	}
	if leap {
		if utc := t.UTC(); utc.Hour() != 23 || utc.Minute() != 59 {
			return fault()
		}
		t = t.Add(time.Second)
	}
	return t, nil
}
