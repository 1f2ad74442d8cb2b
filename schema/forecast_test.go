package schema

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseForecast(t *testing.T) {
	for body, want := range map[string]ForecastRequest{
		``:                                      {Next: 86400, Bucket: 3600},
		" \n":                                   {Next: 86400, Bucket: 3600},
		`{}`:                                    {Next: 86400, Bucket: 3600},
		`{"next":null,"bucket":null}`:           {Next: 86400, Bucket: 3600},
		`{"next":3600}`:                         {Next: 3600, Bucket: 300},
		`{"next":3600.0,"bucket":"15m"}`:        {Next: 3600, Bucket: 900},
		`{"next":"1h30m","bucket":7}`:           {Next: 5400, Bucket: 7},
		`{"next":"7d"}`:                         {Next: 604800, Bucket: 43200},
		`{"next":"3600"}`:                       {Next: 3600, Bucket: 300},
		`{"next":"1d2h3m4s","bucket":"1d"}`:     {Next: 93784, Bucket: 86400},
		`{"next":1}`:                            {Next: 1, Bucket: 1},
		`{"next":"24h","bucket":"1m"}`:          {Next: 86400, Bucket: 60},
		`{"next":2147483647}`:                   {Next: MaxTTL, Bucket: 52 * week},
		`{"next":60,"bucket":2147483647}`:       {Next: 60, Bucket: MaxTTL},
		`{"defaultTtl":null}`:                   {Next: 86400, Bucket: 3600, WhatIf: true},
		`{"defaultTtl":-1,"next":1}`:            {Next: 1, Bucket: 1, WhatIf: true, DefaultTTL: NoDefault},
		`{"\u0064efaultTtl":5e0,"bucket":7200}`: {Next: 86400, Bucket: 7200, WhatIf: true, DefaultTTL: 5},
	} {
		if got, fault := ParseForecast([]byte(body)); fault != nil || got != want {
			t.Errorf("%s: %+v, want %+v (%v)", body, got, want, fault)
		}
	}
}

func TestParseForecastRefuses(t *testing.T) {
	for _, row := range []struct {
		want   *Error
		says   string
		bodies []string
	}{
		{ErrBadRequest, "must be a JSON object", []string{`[]`, `{"next":`, "{\"next\":\xff}"}},
		{ErrBadRequest, "from 1 to 2147483647", []string{`{"next":0}`, `{"next":-1}`, `{"next":1.5}`, `{"next":2147483648}`, `{"next":""}`, `{"next":"h"}`, `{"next":"1h30"}`, `{"next":"30m1h"}`, `{"next":"1.5h"}`,
			`{"next":"+5"}`, `{"next":"9999999999d9999999999h"}`, `{"next":"1500ms"}`, `{"next":"-1h"}`, `{"next":"99999d"}`, `{"next":"9999999999d"}`, `{"next":"\ud800"}`, `{"bucket":[1]}`}},
		{ErrBadRequest, `next "soon": use whole seconds`, []string{`{"next":"soon"}`}},
		{ErrBadRequest, "bucket true: use whole seconds", []string{`{"bucket":true}`}},
		{ErrBadRequest, "are up to 2881 of them: at most 2000 are allowed", []string{`{"next":"24h","bucket":"30s"}`}},
		{ErrBadRequest, "comes twice", []string{`{"next":1,"next":2}`}},
		{ErrBadRequest, "use next, bucket and defaultTtl", []string{`{"until":1}`}},
		{ErrBadTTL, "-1 for no default, or null for off", []string{`{"defaultTtl":0}`, `{"defaultTtl":"off"}`}},
		{ErrTooLarge, "at most 4096 are allowed", []string{"{}" + strings.Repeat(" ", MaxForecastBytes)}},
	} {
		for _, body := range row.bodies {
			if _, fault := ParseForecast([]byte(body)); !errors.Is(fault, row.want) || !strings.Contains(fault.Message, row.says) {
				t.Errorf("%.60s: %v, want %s, %s", body, fault, row.want.Name, row.says)
			}
		}
	}
}

func drawForecast(t *rapid.T) ForecastRequest {
	r := ForecastRequest{
		Next:   rapid.OneOf(rapid.Int64Range(0, 5000), rapid.Int64Range(0, MaxTTL)).Draw(t, "next"),
		WhatIf: rapid.Bool().Draw(t, "what if"),
	}
	if rapid.Bool().Draw(t, "with a bucket") {
		most := r.EnsureDefaults().Next
		r.Bucket = rapid.Int64Range(max(1, (most+MaxForecastBuckets-2)/(MaxForecastBuckets-1)), MaxTTL).Draw(t, "bucket")
		if rapid.Bool().Draw(t, "weeks") && r.Bucket < MaxTTL-week {
			r.Bucket = (r.Bucket + week - 1) / week * week
		}
	}
	if r.WhatIf {
		r.DefaultTTL = DefaultTTL(rapid.Int32Range(-1, 100).Draw(t, "default"))
	}
	return r
}

// TestForecastRequestRoundTrip: ParseForecast reads the body that AppendJSON writes.
func TestForecastRequestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawForecast(t)
		if got, fault := ParseForecast(r.AppendJSON(nil)); fault != nil || got != r.EnsureDefaults() {
			t.Errorf("%s is read as %+v (%v), want %+v", r.AppendJSON(nil), got, fault, r)
		}
	})
}

// TestForecastBuckets: buckets cover the requested time without gaps and begin at
// multiples of their size: weeks, as in the calendar, on Mondays.
func TestForecastBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawForecast(t).EnsureDefaults()
		now := rapid.OneOf(rapid.Int64Range(0, 1<<32), rapid.Map(rapid.Int64Range(0, 1<<20), func(n int64) int64 { return n * r.Bucket })).Draw(t, "now")
		bounds := r.Buckets(now)
		if bounds[0] != now || bounds[len(bounds)-1] != now+r.Next || len(bounds)-1 > MaxForecastBuckets || !slices.IsSorted(bounds) {
			t.Fatalf("%+v at %d: %d buckets, %v", r, now, len(bounds)-1, bounds)
		}
		for i, at := range bounds[1 : len(bounds)-1] {
			from := at
			if r.Bucket%week == 0 {
				from -= 4 * 86400
			}
			if from%r.Bucket != 0 || i > 0 && at-bounds[i] != r.Bucket || at-bounds[i] > r.Bucket {
				t.Fatalf("%+v at %d: bucket %d begins at %d after %d", r, now, i, at, bounds[i])
			}
		}
		if last := len(bounds) - 1; bounds[last] <= bounds[last-1] || bounds[last]-bounds[last-1] > r.Bucket {
			t.Fatalf("%+v at %d: the last bucket is from %d to %d", r, now, bounds[last-1], bounds[last])
		}
	})
	monday := int64(1_783_900_800) // 2026-07-13
	if got := (ForecastRequest{Next: 3 * week, Bucket: week}).Buckets(monday - 3600); !slices.Equal(got, []int64{monday - 3600, monday, monday + week, monday + 2*week, monday + 3*week - 3600}) {
		t.Errorf("weeks begin at %v", got)
	}
}
