package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// Forecast tells how many documents of a collection come due when.
type Forecast = schema.Forecast

// ForecastBucket counts those of one stretch of time.
type ForecastBucket = schema.ForecastBucket

type forecast struct {
	request schema.ForecastRequest
	opts    []RequestOption
	err     error // the first option that is wrong
}

// ForecastOption says what a forecast is asked for. A RequestOption, such as
// MinSeq, is one too.
type ForecastOption interface{ changeForecast(*forecast) }

type forecastOption func(*forecast)

func (opt forecastOption) changeForecast(f *forecast) { opt(f) }

func (opt RequestOption) changeForecast(f *forecast) { f.opts = append(f.opts, opt) }

// Within is how far to look ahead, in whole seconds. Without it, a day.
func Within(d time.Duration) ForecastOption {
	return forecastOption(func(f *forecast) { f.request.Next = f.seconds("within", d) })
}

// InBuckets is what to count in one, in whole seconds. They begin at multiples
// of it in UTC. Without it, there are about 24.
func InBuckets(d time.Duration) ForecastOption {
	return forecastOption(func(f *forecast) { f.request.Bucket = f.seconds("in buckets of", d) })
}

// WhatIf asks what would be so if the collection had another default TTL from
// now on: DefaultTTL, TTLPerDocument or WithoutTTL. Nothing is changed.
func WhatIf(ttl PropertyOption) ForecastOption {
	return forecastOption(func(f *forecast) {
		p := schema.DefaultProperties()
		if err := ttl(&p); err != nil {
			f.fail(err)
		}
		f.request.WhatIf, f.request.DefaultTTL = true, p.DefaultTTL
	})
}

func (f *forecast) seconds(what string, d time.Duration) int64 {
	if d < time.Second || d%time.Second != 0 || d/time.Second > schema.MaxTTL {
		f.fail(ErrBadRequest.With("forecast %s %v: use whole seconds from 1 to %d", what, d, schema.MaxTTL))
	}
	return int64(d / time.Second)
}

func (f *forecast) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// Forecast counts the documents of the collection by when they come due, out of
// the index and without reading them. Any process that serves the database may
// answer.
func (coll *Collection) Forecast(ctx context.Context, opts ...ForecastOption) (Forecast, error) {
	var f forecast
	for _, opt := range opts {
		opt.changeForecast(&f)
	}
	if f.err != nil {
		return Forecast{}, f.err
	}
	reply, err := coll.client.Do(ctx, "forecast", coll.info.Name, "", f.request.AppendJSON(nil), f.opts...)
	if err != nil {
		return Forecast{}, err
	}
	var answer Forecast
	if err := json.Unmarshal(reply.Body, &answer); err != nil {
		return Forecast{}, badReply(err)
	}
	return answer, nil
}
