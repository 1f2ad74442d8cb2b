package importer

import (
	"slices"
	"testing"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/values"
)

// TestForecast: each deadline is in the bucket it is in, and the span shown is the
// shortest that holds all.
func TestForecast(t *testing.T) {
	const now = 1_431_857_103
	for _, deadline := range []int64{0, 1, 3599, 3600, day - 1, day, 7*day - 1, 30 * day, 365*day - 1, 365 * day} {
		var f forecast
		f.begin(now)
		f.add(schema.Deadline{At: now + deadline, Rule: schema.RuleDocument})
		f.add(schema.Deadline{})
		got := f.result(client.CollectionInfo{Name: "orders"})
		i := slices.IndexFunc(Spans[:], func(span int64) bool { return deadline < span })
		if i < 0 {
			if got.Later != 1 || got.Due != 0 || got.Until != now+365*day {
				t.Errorf("%d: %+v", deadline, got)
			}
			continue
		}
		if got.Until != now+Spans[i] || got.Due != 1 || got.Later != 0 || got.Never != 1 || got.Documents != 2 {
			t.Errorf("%d: %+v", deadline, got)
		}
		for _, b := range got.Buckets {
			if in := b.From <= now+deadline && now+deadline < b.Until; (b.Due == 1) != in {
				t.Errorf("%d: %+v", deadline, b)
			}
		}
	}
}

// TestMoments: what a member says is one moment, in seconds, milliseconds or RFC 3339, before
// 1970 too.
func TestMoments(t *testing.T) {
	for _, c := range []struct {
		at    int64
		texts []string
	}{
		{-1, []string{`-1`, `-1.5`, `"-1"`, `"1969-12-31T23:59:59Z"`}},
		{-200_000_000, []string{`-200000000`, `-200000000000`, `"1963-08-31T04:26:40Z"`}},
		{0, []string{`0`, `-0.5`, `"1970-01-01T00:00:00Z"`}},
		{1_431_857_104, []string{`1431857104`, `1431857103.25`, `1431857103250`, `"1431857104"`, `"2015-05-17T10:05:03.250Z"`}},
	} {
		for _, text := range c.texts {
			if end, ok := parseExpiry(values.Value(text)); !ok || end.expiresAt != c.at {
				t.Errorf("%s: %+v, %v, want %d", text, end, ok, c.at)
			}
		}
	}
	for _, text := range []string{`true`, `[1]`, `"soon"`, `"NaN"`, `"-Inf"`, `1e300`} {
		if end, ok := parseExpiry(values.Value(text)); ok {
			t.Errorf("%s: %+v", text, end)
		}
	}
}

// TestWithout: a member is left out where it is, and only there.
func TestWithout(t *testing.T) {
	for _, c := range []struct{ path, in, want string }{
		{"/a", `{"a":1,"b":{"a":2}}`, `{"b":{"a":2}}`},
		{"/b/a", `{"a":1,"b":{"a":2,"c":[1, 2]}}`, `{"a":1,"b":{"c":[1, 2]}}`},
		{"/b/a/x", `{"b":{"a":2}}`, `{"b":{"a":2}}`},
		{"/b/0", `{"b":[1]}`, `{"b":[1]}`},
		{"/q\"/x~1y", `{"q\"":{"x/y":1,"z":2}}`, `{"q\"":{"z":2}}`},
	} {
		path, err := values.ParsePointer(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(without(values.Value(c.in), path)); got != c.want {
			t.Errorf("%s without %s: %s, want %s", c.in, c.path, got, c.want)
		}
	}
}
