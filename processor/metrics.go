package processor

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

// Collector returns the processor's metrics. Collecting them costs what a
// status request does.
func (p *Processor) Collector() prometheus.Collector { return &collector{p.service, p.keeper} }

type collector struct {
	*service
	keeper *keeper
}

var (
	metricSeq       = describe("log_sequence", "Last sequence of the log that is folded.")
	metricDocuments = describe("documents", "Live documents.")
	metricPending   = describe("documents_pending_expiry", "Live documents with a deadline.")
	metricOverdue   = describe("documents_overdue", "Documents past their deadline whose expiry is not yet in the log.")
	metricLateness  = describe("expiry_lateness_seconds", "Log time of DocumentExpired minus the moment it became due, over the last minute.", "quantile")
	metricBehind    = describe("mutations_behind", "Mutations in the stream that are not yet judged.")
	metricForeign   = describe("log_foreign_messages_total", "Messages in the log that were skipped, not being lapse's.")
	metricRequests  = describe("requests_total", "Requests answered.", "operation")
	metricErrors    = describe("request_errors_total", "Requests answered with an error.", "operation")
	metricFirst     = describe("log_first_sequence", "First sequence of the log, as of the last look at the retention.")
	metricSnapshots = describe("snapshots_made_total", "Snapshots made and verified as often as serve was told to.")
	metricKept      = describe("retention_failures_total", "Rounds of snapshots and retention that failed; the log is kept whole then.")
	metricSuspect   = describe("clock_suspect", "Whether the clock is not believed: nothing expires then and writes are refused.")
	metricOffset    = describe("clock_offset_seconds", "How far the clock is ahead of what it should say.")
	metricRefused   = describe("clock_refused_total", "Requests refused because the clock was not believed.")
	metricUp        = describe("up", "Whether the status could be read.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("lapse_"+name, help, append([]string{"database"}, labels...), nil)
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricSeq, metricDocuments, metricPending, metricOverdue, metricLateness,
		metricBehind, metricForeign, metricRequests, metricErrors, metricFirst, metricSnapshots, metricKept,
		metricSuspect, metricOffset, metricRefused, metricUp} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, kind, value, append([]string{string(c.options.Database)}, labels...)...)
	}
	ctx, cancel := context.WithTimeout(c.ctx, statusTimeout)
	defer cancel()
	status, err := c.Status(ctx)
	if err != nil {
		send(metricUp, prometheus.GaugeValue, 0)
		return
	}
	send(metricUp, prometheus.GaugeValue, 1)
	send(metricSeq, prometheus.CounterValue, float64(status.Seq))
	send(metricDocuments, prometheus.GaugeValue, float64(status.Documents))
	send(metricPending, prometheus.GaugeValue, float64(status.PendingExpiry))
	send(metricOverdue, prometheus.GaugeValue, float64(status.Overdue))
	send(metricLateness, prometheus.GaugeValue, float64(status.LatenessMs.P50)/1000, "0.5")
	send(metricLateness, prometheus.GaugeValue, float64(status.LatenessMs.P99)/1000, "0.99")
	send(metricLateness, prometheus.GaugeValue, float64(status.LatenessMs.Max)/1000, "1")
	send(metricBehind, prometheus.GaugeValue, float64(status.MutationsBehind))
	send(metricForeign, prometheus.CounterValue, float64(c.store.Cursor().Foreign))
	if c.options.SnapshotEvery > 0 {
		send(metricFirst, prometheus.GaugeValue, float64(c.keeper.trimmed.Load()))
		send(metricSnapshots, prometheus.CounterValue, float64(c.keeper.made.Load()))
		send(metricKept, prometheus.CounterValue, float64(c.keeper.failed.Load()))
	}
	suspect := 0.
	if status.Clock.Suspect {
		suspect = 1
	}
	send(metricSuspect, prometheus.GaugeValue, suspect)
	send(metricOffset, prometheus.GaugeValue, float64(status.Clock.OffByMs)/1000)
	send(metricRefused, prometheus.CounterValue, float64(status.Clock.Refused))
	for operation, n := range c.operations.snapshot() {
		send(metricRequests, prometheus.CounterValue, float64(n.Requests), operation)
		send(metricErrors, prometheus.CounterValue, float64(n.Errors), operation)
	}
}
