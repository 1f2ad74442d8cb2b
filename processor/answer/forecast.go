package answer

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"time"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// A forecast counts without looking at documents: the expiry index has two orders
// (projections/due.go), documents with a ttl of their own by deadline, documents that
// inherit by _ts. In each order the documents of a bucket are a range, so counting is a
// walk over index entries with a bound at each bucket. Another default TTL shifts the
// bounds of the inheriting order and no entry, which is why a what-if costs no more.
//
//	ByTimestamp, defaultTtl 3600:  due at bucket [F,U)  ⇔  _ts in [F-3600, U-3600)

// forecastEntries is the number of expiry index entries that count as one document of the
// scan limit, since an entry is that much cheaper.
const forecastEntries = 10

// forecastSlice is how long a forecast works between two pauses.
const forecastSlice = 200 * time.Microsecond

// Forecaster answers one forecast. It is used once, by one goroutine. Long walks pause
// (Pace), so that requests go first.
type Forecaster struct {
	Limits  query.Limits
	Pace    func(ctx context.Context, worked time.Duration) // nil to work without a pause
	ctx     context.Context
	began   time.Time // start of the slice
	entries int       // counted
}

var errForecastEntries = errors.New("too much was counted")

// Answer returns the reply; its Seq is that of the state counted.
func (f *Forecaster) Answer(ctx context.Context, store *projections.Store, name schema.CollectionName, ask schema.ForecastRequest, now SecondFunc) (reply query.Reply, err error) {
	v, ok, err := store.View(name)
	if err != nil {
		return reply, err
	}
	if !ok {
		return reply, schema.NoCollection(name)
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	reply.Seq = v.Seq()
	var cancel context.CancelFunc
	f.ctx, cancel = context.WithTimeout(ctx, f.Limits.Time)
	defer cancel()
	f.began = time.Now()
	forecast, err := f.count(v, now(v.Time()), ask)
	if err != nil {
		return reply, f.explain(err)
	}
	reply.Body, err = json.Marshal(forecast)
	return reply, err
}

// count counts the documents of a collection by their deadlines, in both expiry orders.
// Each order has bounds of its own. ends are ascending, exclusive upper bounds of the
// counts that Tally returns: overdue now, due at once by the asked policy, each bucket, and
// the rest.
func (f *Forecaster) count(v *projections.View, now int64, ask schema.ForecastRequest) (*schema.Forecast, error) {
	is := v.Collection()
	would := *is
	if ask.WhatIf {
		would.DefaultTTL = ask.DefaultTTL
	}
	bounds := ask.Buckets(now)
	answer := newForecast(&would, bounds, ask)
	waiting := int64(0)
	for _, order := range []projections.Order{projections.ByDeadline, projections.ByTimestamp} {
		// Overdue documents expire under the present policy, whatever WhatIf asks.
		ends := []int64{0}
		if last, ok := projections.LastDue(is, order, now); ok {
			ends[0] = max(last+1, 0)
		}
		shift, due := projections.DueAt(&would, order, 0)
		if due {
			ends = append(ends, max(ends[0], now+1-shift))
			for _, bound := range bounds[1:] {
				ends = append(ends, max(ends[0], bound-shift))
			}
		}
		counts, err := v.Tally(order, ends, f.step)
		if err != nil {
			return nil, err
		}
		for _, n := range counts {
			waiting += n
		}
		answer.Overdue += counts[0]
		rest := counts[1:]
		if !due {
			answer.Never += rest[0]
			continue
		}
		answer.AtOnce += rest[0]
		for i, n := range rest[1:len(bounds)] {
			answer.Buckets[i].Due += n
			answer.Due += n
		}
		answer.Later += rest[len(bounds)]
	}
	answer.Documents = v.Len() - answer.Overdue
	answer.Never += v.Len() - waiting
	return answer, nil
}

// newForecast returns a forecast without counts.
func newForecast(c *schema.Collection, bounds []int64, ask schema.ForecastRequest) *schema.Forecast {
	last := len(bounds) - 1
	f := &schema.Forecast{Collection: string(c.Name), WhatIf: ask.WhatIf, Now: bounds[0],
		Until: bounds[last], Bucket: ask.Bucket, Buckets: make([]schema.ForecastBucket, last)}
	if c.DefaultTTL != schema.Off {
		f.DefaultTTL = &c.DefaultTTL
	}
	for i := range f.Buckets {
		f.Buckets[i].From, f.Buckets[i].Until = bounds[i], bounds[i+1]
	}
	return f
}

// step adds to the entries counted, and pauses after each forecastSlice.
func (f *Forecaster) step(entries int) error {
	if f.entries += entries; f.entries/forecastEntries > f.Limits.Scanned {
		return errForecastEntries
	}
	if worked := time.Since(f.began); worked >= forecastSlice {
		if f.Pace != nil {
			f.Pace(f.ctx, worked)
		}
		runtime.Gosched()
		f.began = time.Now()
	}
	return f.ctx.Err()
}

// explain turns a limit that was reached into an error for the client.
func (f *Forecaster) explain(err error) error {
	switch {
	case errors.Is(err, errForecastEntries):
		return schema.ErrTooLarge.With("the forecast counted more than %d documents: ask for a shorter next", f.Limits.Scanned*forecastEntries)
	case errors.Is(err, context.DeadlineExceeded):
		return schema.ErrTimeout.With("the forecast took longer than %s: ask for a shorter next", f.Limits.Time)
	case errors.Is(err, context.Canceled):
		return schema.ErrUnavailable.With("lapse is stopping")
	}
	return err
}

// Forecast answers forecast.
func (r *Reader) Forecast(ctx context.Context, now int64, name schema.CollectionName, body []byte) ([]byte, error) {
	ask, fault := schema.ParseForecast(body)
	if fault != nil {
		return nil, fault
	}
	f := Forecaster{Limits: r.Limits.EnsureDefaults()}
	f.Limits.Scanned = min(f.Limits.Scanned, math.MaxInt/forecastEntries)
	reply, err := f.Answer(ctx, r.Store, name, ask, func(int64) int64 { return now / 1000 })
	return reply.Body, err
}
