package service_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
)

// forecast requests a forecast.
func forecast(w *processortest.Wire, collection, body string) (f schema.Forecast) {
	w.T.Helper()
	w.Check(json.Unmarshal(w.Want(200, "forecast."+collection, body).Body, &f))
	return f
}

// TestForecastOnTheSecond: a document is due until its deadline and overdue from then on,
// even while the writer is too busy to expire it.
func TestForecastOnTheSecond(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":10}`)
		ts := w.TS(w.Want(201, "document.create.c.a", `{}`))
		w.Want(201, "document.create.c.b", `{"ttl":-1}`)
		processortest.SleepUntil(ts+9, 999)
		release := w.HoldWriter()
		defer release()
		if f := forecast(w, "c", `{"next":1}`); f.Later != 1 || f.Due != 0 || f.Documents != 2 {
			t.Errorf("before the last second: %+v", f)
		}
		if f := forecast(w, "c", `{"next":2}`); f.Due != 1 || f.Later != 0 || f.Never != 1 || f.Overdue != 0 {
			t.Errorf("a millisecond before: %+v", f)
		}
		processortest.SleepUntil(ts, 10_000)
		for _, body := range []string{``, `{"defaultTtl":null}`, `{"defaultTtl":1000}`, `{"defaultTtl":-1}`} {
			if f := forecast(w, "c", body); f.Overdue != 1 || f.Documents != 1 || f.Never != 1 || f.AtOnce+f.Due+f.Later != 0 {
				t.Errorf("%s on the second: %+v", body, f)
			}
		}
	})
}

// TestForecastLimits: a forecast that scans too many documents is refused.
func TestForecastLimits(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":-1}`)
		var operations []string
		for i := range 400 {
			operations = append(operations, fmt.Sprintf(`{"op":"create","id":"d%d","body":{"ttl":%d}}`, i, 1000+i))
		}
		w.Want(200, "batch.c", `{"operations":[`+strings.Join(operations, ",")+`]}`)
		if r := w.Refused(413, "too_large", "forecast.c", `{"next":1500,"bucket":50}`); !strings.Contains(r.Message, "more than 200 documents: ask for a shorter next") {
			t.Errorf("it says %s", r)
		}
		if f := forecast(w, "c", `{"next":1100,"bucket":50}`); f.Due == 0 || f.Due+f.Later != 400 {
			t.Errorf("%+v", f)
		}
	}, func(o *processor.Options) { o.Query.Scanned = 20 })
}
