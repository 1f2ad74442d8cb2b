package monitor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// slow is a source that takes a second to count documents.
type slow struct{ counts int }

func (s *slow) Sample() Sample                                { return Sample{} }
func (s *slow) Health() projections.Health                    { return projections.Health{} }
func (s *slow) Memory() schema.Memory                         { return schema.Memory{} }
func (s *slow) Ends(context.Context) (StreamEnds, error)      { return StreamEnds{}, nil }
func (s *slow) Usage(context.Context) (Usage, error)          { return Usage{}, nil }
func (s *slow) Status(context.Context) (schema.Status, error) { return schema.Status{}, nil }
func (s *slow) CountDocuments() (DocumentCounts, error) {
	s.counts++
	time.Sleep(time.Second)
	return DocumentCounts{}, nil
}

// TestDocumentCountsRateLimited: counting documents takes at most 1/countShare of the time.
func TestDocumentCountsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, source := NewMonitor("main"), &slow{}
		m.Serving(source)
		scrape := func(want int) {
			t.Helper()
			metrics := make(chan prometheus.Metric, 1000)
			if m.Collect(metrics); source.counts != want {
				t.Errorf("documents were counted %d times, want %d", source.counts, want)
			}
		}
		scrape(1)
		time.Sleep((countShare - 10) * time.Second)
		scrape(1)
		time.Sleep(20 * time.Second)
		scrape(2)
	})
}
