package importer

import (
	"sort"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// forecast counts documents by their deadline, in several spans at a time: which one
// shows them all is known at the end. The lines are read once and kept nowhere, so they
// are counted in all spans at the same time: an hour in buckets of 5 minutes, a day in
// hours, and so on.
type forecast [len(Spans)]client.Forecast

// Spans are those of a forecast, in seconds.
var Spans = [...]int64{3600, day, 7 * day, 30 * day, 365 * day}

const day = 24 * 3600

// begin makes the empty buckets of all spans, from this machine's second on.
func (f *forecast) begin(now int64) {
	for i, next := range Spans {
		request := schema.ForecastRequest{Next: next}.EnsureDefaults()
		bounds := request.Buckets(now)
		f[i] = client.Forecast{Now: now, Until: now + next, Bucket: request.Bucket}
		for b, from := range bounds[:len(bounds)-1] {
			f[i].Buckets = append(f[i].Buckets, client.ForecastBucket{From: from, Until: bounds[b+1]})
		}
	}
}

func (f *forecast) add(d schema.Deadline) {
	for i := range f {
		span := &f[i]
		span.Documents++
		switch {
		case d.Rule == schema.NoRule:
			span.Never++
		case d.At >= span.Until:
			span.Later++
		default:
			span.Due++
			// The bucket that begins last before the deadline.
			b := sort.Search(len(span.Buckets), func(b int) bool { return span.Buckets[b].From > d.At })
			span.Buckets[max(b-1, 0)].Due++
		}
	}
}

// Within returns how many of the documents expire within each of Spans, and how many never do.
func (im *Import) Within() (due [len(Spans)]int64, never int64) {
	for i, f := range im.forecast {
		due[i] = f.Due
	}
	return due, im.forecast[0].Never
}

// result returns the forecast of the shortest span that shows all. Shorter spans have
// finer buckets; if none shows all, it is the longest, with the rest as Later.
func (f *forecast) result(info client.CollectionInfo) *client.Forecast {
	shown := &f[len(f)-1]
	for i := len(f) - 1; i >= 0; i-- {
		if f[i].Later == 0 {
			shown = &f[i]
		}
	}
	if shown.Collection = info.Name; info.DefaultTTL != schema.Off {
		shown.DefaultTTL = &info.DefaultTTL
	}
	return shown
}
