package client_test

import (
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
)

func TestForecast(t *testing.T) {
	s := newStandin(t).serve()
	coll := s.collection(s.client())
	s.answer("forecast.orders", 200, `{"collection":"orders","defaultTtl":60,"whatIf":true,"now":100,"documents":10,"overdue":1,"atOnce":2,"due":3,"later":4,"never":1,"until":130,"bucket":20,"buckets":[{"from":100,"until":120,"due":3},{"from":120,"until":130,"due":0}]}`)
	for want, opts := range map[string][]client.ForecastOption{
		`{}`: nil,
		`{"next":5400,"bucket":60,"defaultTtl":3600}`: {client.Within(90 * time.Minute), client.InBuckets(time.Minute), client.WhatIf(client.DefaultTTL(time.Hour))},
		`{"defaultTtl":null}`:                         {client.WhatIf(client.WithoutTTL())},
		`{"next":1,"defaultTtl":-1}`:                  {client.Within(time.Second), client.WhatIf(client.TTLPerDocument()), client.MinSeq(7)},
	} {
		f, err := coll.Forecast(t.Context(), opts...)
		if err != nil || f.DefaultTTL == nil || *f.DefaultTTL != 60 || f.Documents != 10 || f.AtOnce != 2 || len(f.Buckets) != 2 || f.Buckets[0] != (client.ForecastBucket{From: 100, Until: 120, Due: 3}) {
			t.Errorf("%+v, %v", f, err)
		}
		if got := string(s.last().Data); got != want {
			t.Errorf("it asks %s, want %s", got, want)
		}
		if got := s.last().Header.Get("Lapse-Min-Seq"); (got == "7") != (want == `{"next":1,"defaultTtl":-1}`) {
			t.Errorf("%s asks for sequence %q", want, got)
		}
	}
	s.answer("forecast.orders", 200, `[]`)
	if _, err := coll.Forecast(t.Context()); !decoding(err, "") {
		t.Errorf("%v", err)
	}
}
