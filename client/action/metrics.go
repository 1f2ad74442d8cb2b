package action

import (
	"context"
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapsedb/lapse/client"
)

// Metrics count what Run does. They are a prometheus.Collector. They are a registry of
// their own, so that a program can have several durables and expose each.
type Metrics struct {
	*prometheus.Registry
	tries, failures, poison prometheus.Counter
}

// NewMetrics returns the metrics of a durable, with the labels database and durable.
func NewMetrics(c *client.Client, durable string) *Metrics {
	labels := prometheus.Labels{"database": c.Database(), "durable": durable}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "lapse_watch_" + name, Help: help, ConstLabels: labels})
	}
	m := &Metrics{
		prometheus.NewRegistry(),
		counter("tries_total", "Commands or requests begun."),
		counter("failures_total", "Tries that failed; their events are tried again or put aside."),
		counter("poison_total", "Events put aside after --tries failures."),
	}
	m.MustRegister(m.tries, m.failures, m.poison, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lapse_watch_behind_events", Help: "Events not yet done, those under way included; NaN while the log is unreachable.", ConstLabels: labels,
	}, func() float64 {
		consumers, _ := c.Consumers(context.Background())
		for _, of := range consumers {
			if of.Name == durable {
				return float64(of.Pending) + float64(of.Unacked)
			}
		}
		return math.NaN()
	}))
	return m
}
