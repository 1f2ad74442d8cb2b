package offline_test

import (
	"context"
	"encoding/json"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/internal/model"
	"github.com/lapsedb/lapse/processor/offline"
	"github.com/lapsedb/lapse/schema"
)

// drawHistory draws the history of a collection of few documents, with TTL off, on
// without a default, and with a default. Invalid ttl values written while TTL is off
// stay.
func drawHistory(t *rapid.T, l *offline.Local) {
	request := func(tail, body string) {
		if _, err := l.Request(tail, nil, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	policy := rapid.SampledFrom([]string{`{}`, `{"defaultTtl":-1}`, `{"defaultTtl":40}`, `{"defaultTtl":9}`, `{"indexingPolicy":{"indexingMode":"none"}}`})
	request("collection.create.c", policy.Draw(t, "policy"))
	for range rapid.IntRange(0, 40).Draw(t, "steps") {
		if err := l.Advance(l.Now() + rapid.SampledFrom([]int64{0, 300, 1000, 4000, 25_000}).Draw(t, "time")); err != nil {
			t.Fatal(err)
		}
		document := "c." + rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h"}).Draw(t, "id")
		switch rapid.IntRange(0, 12).Draw(t, "step") {
		case 0, 1:
			request("collection.replace.c", policy.Draw(t, "policy"))
		case 2:
			request("document.delete."+document, "")
		case 3:
			request("document.patch."+document, `{"n":1}`)
		default:
			request("document.upsert."+document, rapid.SampledFrom([]string{`{}`, `{}`, `{"ttl":null}`, `{"ttl":-1}`, `{"ttl":0}`, `{"ttl":"x"}`, `{"ttl":3}`, `{"ttl":30}`, `{"ttl":60}`}).Draw(t, "document"))
		}
	}
}

func drawForecast(t *rapid.T) (body string, ask schema.ForecastRequest) {
	ask.Next = rapid.Int64Range(1, 100).Draw(t, "next")
	ask.Bucket = rapid.Int64Range(1, 50).Draw(t, "bucket")
	if rapid.IntRange(0, 3).Draw(t, "what if") > 0 {
		ask.WhatIf = true
		ask.DefaultTTL = schema.DefaultTTL(rapid.SampledFrom([]int32{0, -1, 1, 5, 30, 90, schema.MaxTTL}).Draw(t, "default"))
	}
	return string(ask.AppendJSON(nil)), ask
}

// naiveForecast judges each document that a log leaves on its own.
func naiveForecast(t *rapid.T, log []*schema.Event, now int64, ask schema.ForecastRequest) schema.Forecast {
	var lines []byte
	for _, e := range log {
		lines = e.AppendJSON(lines)
	}
	events, err := model.ParseLog(lines)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Of(events)
	if err != nil {
		t.Fatal(err)
	}
	is := m.Collections["c"]
	would := &model.Collection{Properties: maps.Clone(is.Properties)}
	if ask.WhatIf {
		would.Properties["defaultTtl"] = nil
		if ask.DefaultTTL != schema.Off {
			would.Properties["defaultTtl"] = float64(ask.DefaultTTL)
		}
	}
	f := schema.Forecast{Collection: "c", WhatIf: ask.WhatIf, Now: now, Until: now + ask.Next, Bucket: ask.Bucket}
	if ttl, on := would.Properties["defaultTtl"].(float64); on {
		f.DefaultTTL = new(schema.DefaultTTL(ttl))
	}
	for from := now; from < f.Until; {
		until := min(f.Until, (from/ask.Bucket+1)*ask.Bucket)
		f.Buckets = append(f.Buckets, schema.ForecastBucket{From: from, Until: until})
		from = until
	}
	for _, d := range is.Documents {
		if is.Deadline(d).Passed(now) {
			f.Overdue++
			continue
		}
		f.Documents++
		switch due := would.Deadline(d); {
		case due.Rule == "":
			f.Never++
		case due.Passed(now):
			f.AtOnce++
		case due.Passed(f.Until - 1):
			f.Due++
			for i := range f.Buckets {
				if b := &f.Buckets[i]; b.From <= due.At && due.At < b.Until {
					b.Due++
				}
			}
		default:
			f.Later++
		}
	}
	return f
}

// TestForecastMatchesNaiveCount: a forecast equals the count of documents one by one, under the
// present policy and any other, whether or not due documents have expired yet.
func TestForecastMatchesNaiveCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, err := offline.NewLocal(rapid.Int64Range(0, 2_000_000_000).Draw(t, "start") * 1000)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		drawHistory(t, l)
		for range 4 {
			body, ask := drawForecast(t)
			now := l.Now() + rapid.SampledFrom([]int64{0, 999, 5000, 30_000, 1_000_000}).Draw(t, "ago")
			got, err := l.Forecast(context.Background(), now, "c", []byte(body))
			if err != nil {
				t.Fatal(err)
			}
			want, _ := json.Marshal(naiveForecast(t, l.Log(), now/1000, ask))
			if string(got) != string(want) {
				t.Fatalf("%s at %d\n%s\nwant\n%s", body, now, got, want)
			}
		}
	})
}
