package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
)

func TestForecast(t *testing.T) {
	s := newStandin(t).serve()
	c := s.client()
	coll := s.collection(c)
	s.answer("forecast.orders", 200, `{"collection":"orders","defaultTtl":60,"whatIf":true,"now":100,"documents":10,"overdue":1,"atOnce":2,"due":3,"later":4,"never":1,"until":130,"bucket":20,"buckets":[{"from":100,"until":120,"due":3},{"from":120,"until":130,"due":0}]}`)
	f, err := coll.Forecast(t.Context())
	if err != nil || f.DefaultTTL == nil || *f.DefaultTTL != 60 || f.Documents != 10 || f.AtOnce != 2 || len(f.Buckets) != 2 || f.Buckets[0] != (client.ForecastBucket{From: 100, Until: 120, Due: 3}) {
		t.Errorf("%+v, %v", f, err)
	}
	for want, opts := range map[string][]client.ForecastOption{
		`{}`: nil,
		`{"next":5400,"bucket":60,"defaultTtl":3600}`: {client.Within(90 * time.Minute), client.InBuckets(time.Minute), client.WhatIf(client.DefaultTTL(time.Hour))},
		`{"defaultTtl":null}`:                         {client.WhatIf(client.WithoutTTL())},
		`{"next":1,"defaultTtl":-1}`:                  {client.Within(time.Second), client.WhatIf(client.TTLPerDocument()), client.MinSeq(7)},
	} {
		if _, err := coll.Forecast(t.Context(), opts...); err != nil {
			t.Error(err)
		}
		if got := string(s.last().Data); got != want {
			t.Errorf("it asks %s, want %s", got, want)
		}
		if got := s.last().Header.Get("Lapse-Min-Seq"); (got == "7") != (want == `{"next":1,"defaultTtl":-1}`) {
			t.Errorf("%s asks for sequence %q", want, got)
		}
	}
	for _, wrong := range []client.ForecastOption{client.Within(0), client.Within(1500 * time.Millisecond), client.InBuckets(-time.Second), client.Within(100 * 365 * 24 * time.Hour)} {
		if _, err := coll.Forecast(t.Context(), wrong); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("%v", err)
		}
	}
	if _, err := coll.Forecast(t.Context(), client.WhatIf(client.DefaultTTL(0))); !errors.Is(err, client.ErrBadTTL) {
		t.Errorf("%v", err)
	}
	s.answer("forecast.orders", 200, `[]`)
	if _, err := coll.Forecast(t.Context()); !decoding(err, "") {
		t.Errorf("%v", err)
	}
	s.answer("forecast.orders", 404, `{"code":404,"error":"collection_not_found","message":"gone"}`)
	if _, err := coll.Forecast(t.Context()); !errors.Is(err, client.ErrCollectionNotFound) {
		t.Errorf("%v", err)
	}
}
