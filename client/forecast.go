package client

import (
	"context"
	"time"

	"github.com/lapsedb/lapse/schema"
)

// Forecast counts the documents of a collection by the time at which they expire.
type Forecast = schema.Forecast

// ForecastBucket counts the documents that expire in one interval.
type ForecastBucket = schema.ForecastBucket

type forecast struct {
	request schema.ForecastRequest
	opts    []RequestOption
	err     error // of the first invalid option
}

// ForecastOption is an option of a forecast. Every RequestOption, such as MinSeq, is
// one.
type ForecastOption interface{ changeForecast(*forecast) }

type forecastOption func(*forecast)

func (opt forecastOption) changeForecast(f *forecast) { opt(f) }

func (opt RequestOption) changeForecast(f *forecast) { f.opts = append(f.opts, opt) }

// Within sets how far to look ahead, in whole seconds; the default is a day.
func Within(d time.Duration) ForecastOption {
	return forecastOption(func(f *forecast) { f.request.Next = f.seconds("within", d) })
}

// InBuckets sets the size of a bucket, in whole seconds. Buckets begin at multiples of
// it in UTC. The default is about 24 buckets.
func InBuckets(d time.Duration) ForecastOption {
	return forecastOption(func(f *forecast) { f.request.Bucket = f.seconds("in buckets of", d) })
}

// WhatIf forecasts under another default TTL: DefaultTTL, TTLPerDocument or WithoutTTL.
// It changes nothing.
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

// Forecast counts the documents of the collection by the time at which they expire. It
// reads the deadline index, not the documents. Any process that serves the database may
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
	err = decodeReply(coll.info.Name, reply, &answer)
	return answer, err
}
