package host

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapsedb/lapse/processor/monitor"
	"github.com/lapsedb/lapse/schema"
)

// HTTP handlers and metrics are served from before the databases are known until after the
// last one has ended. So the list of monitors is replaced as a whole, never changed:
// readers load a pointer and need no lock. Writers are few: the start, and under a lock of
// theirs the databases that come and go with lapse test.

// monitors holds one monitor for each database of the process. It is empty until their
// names are known.
type monitors struct {
	known atomic.Pointer[[]*monitor.Monitor]
}

// set makes a monitor for each database.
func (m *monitors) set(names []schema.DatabaseName) {
	all := make([]*monitor.Monitor, len(names))
	for i, name := range names {
		all[i] = monitor.NewMonitor(name)
	}
	m.known.Store(&all)
}

func (m *monitors) add(mon *monitor.Monitor) {
	all := append(slices.Clone(m.all()), mon)
	m.known.Store(&all)
}

func (m *monitors) remove(mon *monitor.Monitor) {
	all := slices.DeleteFunc(slices.Clone(m.all()), func(other *monitor.Monitor) bool { return other == mon })
	m.known.Store(&all)
}

// all returns the monitors, nil while no names are known. The caller does not change the
// slice.
func (m *monitors) all() []*monitor.Monitor {
	if known := m.known.Load(); known != nil {
		return *known
	}
	return nil
}

// of returns the monitors of ?database=NAME: all without a name, none if NAME is not served.
// named reports whether replies must name the database.
func (m *monitors) of(name string) (some []*monitor.Monitor, named bool) {
	all := m.all()
	if name == "" {
		return all, len(all) > 1
	}
	for _, mon := range all {
		if string(mon.Database()) == name {
			return []*monitor.Monitor{mon}, false
		}
	}
	return nil, false
}

// live returns the reasons to restart the process: none if one database is live, which a
// restart would interrupt.
func live(some []*monitor.Monitor, named bool) (reasons []string) {
	for _, mon := range some {
		err := mon.Live()
		if err == nil {
			return nil
		}
		reasons = append(reasons, about(mon, named, err.Error()))
	}
	return reasons
}

// ready returns why some databases are not ready: none of the reasons means that all of
// them answer.
func ready(some []*monitor.Monitor, named bool) (reasons []string) {
	for _, mon := range some {
		for _, reason := range mon.Ready() {
			reasons = append(reasons, about(mon, named, reason))
		}
	}
	return reasons
}

// about adds the database to a reason, if named.
func about(mon *monitor.Monitor, named bool, reason string) string {
	if !named {
		return reason
	}
	return "database " + string(mon.Database()) + ": " + reason
}

// Describe implements prometheus.Collector: the metrics are checked when they are
// collected, since the databases may not be known before.
func (m *monitors) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. The monitors collect at the same time, since
// each may ask NATS: a slow one then costs its own time, not the sum.
func (m *monitors) Collect(metrics chan<- prometheus.Metric) {
	var collecting sync.WaitGroup
	for _, mon := range m.all() {
		collecting.Go(func() { mon.Collect(metrics) })
	}
	collecting.Wait()
}
