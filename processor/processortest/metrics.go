package processortest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapsedb/lapse/processor/monitor"
)

// Metrics are the values of a scrape by name and labels, less the database's:
// "lapse_role{role=writer}". Histograms are there as _count and _sum.
type Metrics map[string]float64

// Gather scrapes a monitor, and fails if a metric is of another database than main.
func Gather(t testing.TB, m *monitor.Monitor) Metrics {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(Metrics)
	for _, f := range families {
		for _, metric := range f.Metric {
			labels := ""
			for _, l := range metric.Label {
				if l.GetName() != "database" {
					labels += fmt.Sprintf("{%s=%s}", l.GetName(), l.GetValue())
				} else if l.GetValue() != "main" {
					t.Errorf("%s is of database %s", f.GetName(), l.GetValue())
				}
			}
			if h := metric.Histogram; h != nil {
				values[f.GetName()+"_count"+labels] = float64(h.GetSampleCount())
				values[f.GetName()+"_sum"+labels] = h.GetSampleSum()
				continue
			}
			values[f.GetName()+labels] = metric.Counter.GetValue() + metric.Gauge.GetValue()
		}
	}
	return values
}

// Want compares the metrics that want has; others may have any value.
func (m Metrics) Want(t testing.TB, want Metrics) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got, ok := m[name]; !ok || got != want[name] {
			t.Errorf("%s is %g (there: %t), want %g", name, got, ok, want[name])
		}
	}
}

// WantReady waits until Ready returns lines with all parts, or none if there are no
// parts.
func (w *Wire) WantReady(why string, parts ...string) {
	w.T.Helper()
	var problems string
	w.Eventually(why, func() bool {
		problems = strings.Join(w.Monitor.Ready(), "\n")
		if len(parts) == 0 {
			return problems == ""
		}
		for _, part := range parts {
			if !strings.Contains(problems, part) {
				return false
			}
		}
		return true
	})
	if w.T.Failed() {
		w.T.Logf("it reports:\n%s", problems)
	}
}
