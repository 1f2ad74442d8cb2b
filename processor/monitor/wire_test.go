package monitor_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/monitor"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/processortest"
)

// TestMetrics: metrics count operations, events, expiries, requests and batches.
func TestMetrics(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		m := w.Monitor
		before := processortest.Gather(t, m)
		before.Want(t, processortest.Metrics{
			"lapse_ready": 1, "lapse_role{role=writer}": 1, "lapse_role{role=standby}": 0, "lapse_folded_sequence": 1,
			"lapse_log_last_sequence": 1, "lapse_fold_lag_events": 0, "lapse_fold_lag_seconds": 0, "lapse_catch_up_ratio": 1,
			"lapse_documents": 0, "lapse_collections": 0, "lapse_log_unreachable": 0, "lapse_fence_moves_total": 1,
			"lapse_nats_connected{connection=log}": 1, "lapse_nats_connected{connection=service}": 1,
			"lapse_mutations_total{op=document.upsert}{outcome=ok}{source=request}": 0, "lapse_expiries_total{rule=document}": 0,
			"lapse_requests_total{code=429}{operation=document.get}": 0, "lapse_snapshots_made_total": 0, "lapse_retention_failures_total": 0,
		})
		w.Want(201, "collection.create.c", `{"defaultTtl":-1}`)
		w.Want(201, "document.create.c.a", `{"ttl":10}`)
		w.Want(201, "document.create.c.b", `{"ttl":100}`)
		w.Want(201, "document.create.c.c", `{}`)
		w.Refused(409, "document_exists", "document.create.c.c", `{}`)
		w.Refused(404, "document_not_found", "document.get.c.unknown", "")
		for _, stale := range []string{"collection.replace.c", "document.upsert.c.c"} {
			w.Refused(412, "precondition_failed", stale, "{}", "If-Match", "1000")
		}
		w.Refused(409, "collection_exists", "collection.create.c", "{}")
		w.Refused(404, "document_not_found", "document.touch.c.unknown", "")
		w.Refused(409, "not_held", "document.release.c.c", "")
		w.Refused(404, "version_not_found", "document.restore.c.unknown", "")
		w.Refused(404, "collection_not_found", "document.patch.unknown.a", "{}")
		w.Refused(404, "collection_not_found", "collection.delete.unknown", "")
		w.Refused(400, "bad_request", "batch.c", "{")
		w.Refused(400, "bad_query", "query.c", `{"where":"("}`)
		w.Want(200, "document.hold.c.c", "")
		w.Refused(423, "document_held", "document.delete.c.c", "")
		w.Want(200, "document.release.c.c", "")
		w.Want(200, "batch.c", `{"operations":[{"op":"upsert","id":"d","body":{}},{"op":"get","id":"c"}]}`)
		w.Want(200, "document.get.c.c", "")
		w.Publish("document.upsert.c.e", `{}`)
		w.Publish("document.replace.c.unknown", `{}`)
		time.Sleep(20 * time.Second)
		after := processortest.Gather(t, m)
		after.Want(t, processortest.Metrics{
			"lapse_documents": 4, "lapse_documents_pending_expiry": 1, "lapse_documents_overdue": 0, "lapse_collections": 1,
			"lapse_mutations_behind": 0,
			"lapse_mutations_total{op=document.create}{outcome=ok}{source=request}":                 3,
			"lapse_mutations_total{op=document.create}{outcome=document_exists}{source=request}":    1,
			"lapse_mutations_total{op=document.upsert}{outcome=ok}{source=stream}":                  1,
			"lapse_mutations_total{op=document.replace}{outcome=document_not_found}{source=stream}": 1,
			"lapse_mutations_total{op=collection.create}{outcome=ok}{source=request}":               1,
			"lapse_mutations_total{op=batch}{outcome=ok}{source=request}":                           1,
			"lapse_batch_operations_total":                                                          2,
			"lapse_events_total{type=DocumentCreated}":                                              5,
			"lapse_events_total{type=DocumentExpired}":                                              1,
			"lapse_events_total{type=MutationRejected}":                                             1,
			"lapse_expiries_total{rule=document}":                                                   1,
			"lapse_expiries_total{rule=collection}":                                                 0,
			"lapse_expiry_lateness_seconds_count":                                                   1,
			"lapse_requests_total{code=201}{operation=document.create}":                             3,
			"lapse_requests_total{code=409}{operation=document.create}":                             1,
			"lapse_requests_total{code=404}{operation=document.get}":                                1,
			"lapse_requests_total{code=200}{operation=document.get}":                                1,
			"lapse_request_duration_seconds_count{operation=document.get}":                          2,
			"lapse_log_syncs_total":                                                                 0, // durability os
			"lapse_clock_suspect":                                                                   0,
			"lapse_append_failures_total":                                                           0,
		})
		host, pid := observe.ThisProcess()
		if info := fmt.Sprintf("lapse_build_info{go_version=%s}{host=%s}{pid=%d}{process=%s}{version=%s}", runtime.Version(), host, pid, w.Options.Node, m.Version); after[info] != 1 {
			t.Errorf("%s is not there", info)
		}
		if status, err := m.Status(context.Background()); err != nil || status.Host != host || status.PID != pid {
			t.Errorf("status is of process %d at %s, %v", status.PID, status.Host, err)
		}
		if late := after["lapse_expiry_lateness_seconds_sum"]; late > 1 {
			t.Errorf("an expiry of an idle processor is %gs late", late)
		}
		if seq := after["lapse_folded_sequence"]; seq != float64(w.Processor.Seq()) || after["lapse_append_events_sum{kind=single}"]+after["lapse_append_events_sum{kind=batch}"] != seq-1 {
			t.Errorf("%g are folded, and %g were appended besides the fence", seq, after["lapse_append_events_sum{kind=single}"]+after["lapse_append_events_sum{kind=batch}"])
		}
		for name := range after {
			if strings.HasPrefix(name, "lapse_snapshot") && !strings.HasPrefix(name, "lapse_snapshots_") {
				t.Errorf("%s is there, and no snapshots are made", name)
			}
			if _, ok := before[name]; !ok && strings.Contains(name, "_total") {
				t.Errorf("the counter %s was not there before it counted", name)
			}
		}
		w.Stop()
		if stopped := processortest.Gather(t, m); stopped["lapse_ready"] != 0 || stopped["lapse_events_total{type=DocumentExpired}"] != 1 {
			t.Errorf("after the end: %v", stopped)
		}
	})
}

// TestMetricsLint: names, units and help pass promlint, before the start and with all
// metrics present.
func TestMetricsLint(t *testing.T) {
	lint := func(when string, m *monitor.Monitor) {
		t.Helper()
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(m)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s: %s", when, p.Metric, p.Text)
		}
	}
	early := monitor.NewMonitor("main")
	lint("before the start", early)
	processortest.Gather(t, early).Want(t, processortest.Metrics{"lapse_ready": 0, "lapse_catch_up_ratio": 0, "lapse_role{role=writer}": 0})
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", "")
		w.Want(201, "document.create.c.a", "{}")
		time.Sleep(61 * time.Minute) // a snapshot is made
		lint("with snapshots", w.Monitor)
		after := processortest.Gather(t, w.Monitor)
		after.Want(t, processortest.Metrics{"lapse_snapshots_made_total": 1, "lapse_retention_failures_total": 0,
			"lapse_storage_limit_bytes{limit=disk}": 1000, "lapse_storage_left_bytes{limit=disk}": 900, "lapse_storage_full_seconds{limit=disk}": math.Inf(1)})
		if after["lapse_log_bytes"] == 0 {
			t.Error("the log has no bytes")
		}
		at := after["lapse_snapshot_last_timestamp_seconds"]
		for name, former := range map[string]string{"lapse_snapshot_last_timestamp_seconds": "lapse_snapshot_last_time_seconds", "lapse_log_timestamp_seconds": "lapse_log_time_seconds"} {
			if after[name] == 0 || after[name] != after[former] {
				t.Errorf("%s is %g, and %s %g", name, after[name], former, after[former])
			}
		}
		if time.Since(time.UnixMilli(int64(at*1000))) > 2*time.Minute || after["lapse_snapshot_last_bytes"] == 0 {
			t.Errorf("the snapshot is of %g and has %g bytes", at, after["lapse_snapshot_last_bytes"])
		}
		described := make(chan *prometheus.Desc, 1000)
		w.Monitor.Describe(described)
		close(described)
		for d := range described {
			name, _, _ := strings.Cut(strings.TrimPrefix(d.String(), `Desc{fqName: "`), `"`)
			if !slices.ContainsFunc(slices.Collect(maps.Keys(after)), func(has string) bool { return strings.HasPrefix(has, name) }) &&
				name != "lapse_projection_disk_available_bytes" && name != "lapse_projection_disk_size_bytes" {
				t.Errorf("%s is described and not there", name)
			}
		}
	}, processortest.Retaining(time.Hour, time.Hour), func(o *processor.Options) {
		o.Limits = func() []monitor.Limit {
			return []monitor.Limit{{Name: "server", Max: 2000, Left: 1500}, {Name: "disk", Max: 1000, Left: 900}}
		}
	})
}
