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
	for body, want := range map[string]string{
		`[]`:                                "must be a JSON object",
		`{"next":`:                          "must be a JSON object",
		"{\"next\":\xff}":                   "must be a JSON object",
		`{"next":0}`:                        "from 1 to 2147483647",
		`{"next":-1}`:                       "from 1 to 2147483647",
		`{"next":1.5}`:                      "from 1 to 2147483647",
		`{"next":2147483648}`:               "from 1 to 2147483647",
		`{"next":"soon"}`:                   `next "soon": use whole seconds`,
		`{"next":""}`:                       "from 1 to 2147483647",
		`{"next":"h"}`:                      "from 1 to 2147483647",
		`{"next":"1h30"}`:                   "from 1 to 2147483647",
		`{"next":"30m1h"}`:                  "from 1 to 2147483647",
		`{"next":"1.5h"}`:                   "from 1 to 2147483647",
		`{"next":"+5"}`:                     "from 1 to 2147483647",
		`{"next":"9999999999d9999999999h"}`: "from 1 to 2147483647",
		`{"next":"1500ms"}`:                 "from 1 to 2147483647",
		`{"next":"-1h"}`:                    "from 1 to 2147483647",
		`{"next":"99999d"}`:                 "from 1 to 2147483647",
		`{"next":"9999999999d"}`:            "from 1 to 2147483647",
		`{"next":"\ud800"}`:                 "from 1 to 2147483647",
		`{"bucket":true}`:                   "bucket true: use whole seconds",
		`{"bucket":[1]}`:                    "from 1 to 2147483647",
		`{"next":"24h","bucket":"30s"}`:     "are up to 2881 of them: at most 2000 are allowed",
		`{"defaultTtl":0}`:                  "-1 for no default, or null for off",
		`{"defaultTtl":"off"}`:              "-1 for no default, or null for off",
		`{"next":1,"next":2}`:               "comes twice",
		`{"until":1}`:                       "use next, bucket and defaultTtl",
		"{}" + strings.Repeat(" ", MaxForecastBytes): "at most 4096 are allowed",
	} {
		_, fault := ParseForecast([]byte(body))
		if fault == nil || !strings.Contains(fault.Message, want) {
			t.Errorf("%.60s: %v, want %s", body, fault, want)
			continue
		}
		right := ErrBadRequest
		switch {
		case strings.Contains(body, "defaultTtl"):
			right = ErrBadTTL
		case len(body) > MaxForecastBytes:
			right = ErrTooLarge
		}
		if !errors.Is(fault, right) {
			t.Errorf("%.60s: %s, want %s", body, fault.Name, right.Name)
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
