package watching

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const rulesFile = "../../../deploy/prometheus/rules.yml"

var promQL = parser.NewParser(parser.Options{})

// rules returns the rules of all groups in the file.
func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	check(t, err)
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// TestRules: the file of alert rules is valid. Each alert has a severity, a summary and a
// description, and its expression uses exported metrics only.
func TestRules(t *testing.T) {
	exported := exported(t)
	all := rules(t)
	for _, r := range all {
		if r.Record != "" {
			exported[r.Record] = true
		}
	}
	seen := make(map[string]bool)
	for _, r := range all {
		for _, name := range metricsIn(t, r.Expr) {
			if !exported[name] && !byExporter[name] && name != "up" {
				t.Errorf("%s%s names %s, which nobody exports", r.Alert, r.Record, name)
			}
		}
		if r.Alert == "" {
			continue
		}
		if seen[r.Alert] {
			t.Errorf("%s is there twice", r.Alert)
		}
		seen[r.Alert] = true
		if severity := r.Labels["severity"]; severity != "warning" && severity != "critical" {
			t.Errorf("%s has the severity %q", r.Alert, severity)
		}
		for _, part := range []string{"summary", "description"} {
			if text := r.Annotations[part]; !strings.HasSuffix(text, ".") {
				t.Errorf("%s has the %s %q", r.Alert, part, text)
			}
		}
	}
	for _, about := range []string{"NoWriter", "LogNearlyFull", "LogFullSoon", "TwoWriters", "NotReady", "Late", "OverdueGrows", "FoldLag", "ClockSuspect",
		"RetentionFails", "DiskNearlyFull", "LogOutOfReach", "CannotTakeOver", "SnapshotOld"} {
		if !seen["Lapse"+about] {
			t.Errorf("there is no Lapse%s", about)
		}
	}
}

// byExporter are metrics of the NATS exporter, which has those that NATS has in /varz.
var byExporter = map[string]bool{"gnatsd_varz_jetstream_stats_storage": true, "gnatsd_varz_jetstream_config_max_storage": true}

// metricsIn returns the names of the metrics in an expression.
func metricsIn(t *testing.T, text string) (names []string) {
	t.Helper()
	expr, err := promQL.ParseExpr(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			names = append(names, s.Name)
		}
		return nil
	})
	return names
}

// two holds the series of two healthy processes, a writer and a standby. They are sampled
// every 15 s, in the notation of PromQL's tests.
const two = `load 15s
  lapse_role{database="main",instance="a",role="writer"} 1x400
  lapse_role{database="main",instance="b",role="writer"} 0x400
  lapse_ready{database="main",instance="a"} 1x400
  lapse_ready{database="main",instance="b"} 1x400
  up{job="lapse",instance="a"} 1x400
  lapse_log_unreachable{database="main",instance="a"} 0x400
  lapse_lease_unreachable{database="main",instance="b"} 0x400
  lapse_nats_connected{database="main",instance="a",connection="log"} 1x400
  lapse_append_failures_total{database="main",instance="a"} 0x400
  lapse_documents_overdue{database="main",instance="a"} 0x400
  lapse_documents_overdue{database="main",instance="b"} 0x400
  lapse_mutations_behind{database="main",instance="a"} 0x400
  lapse_fold_lag_seconds{database="main",instance="a"} 0x400
  lapse_clock_suspect{database="main",instance="a"} 0x400
  lapse_requests_total{database="main",instance="a",operation="document.get",code="200"} 0+150x400
  lapse_requests_total{database="main",instance="a",operation="document.upsert",code="429"} 0+1x400
  lapse_retention_failures_total{database="main",instance="a"} 0x400
  lapse_snapshot_last_timestamp_seconds{database="main",instance="a"} 0+15x400
  lapse_events_total{database="main",instance="a",type="DocumentCreated"} 0+100x400
  lapse_storage_limit_bytes{database="main",instance="a",limit="disk"} 100e9x400
  lapse_storage_limit_bytes{database="main",instance="b",limit="disk"} 100e9x400
  lapse_storage_left_bytes{database="main",instance="a",limit="disk"} 50e9x400
  lapse_storage_left_bytes{database="main",instance="b",limit="disk"} 50e9x400
  lapse_storage_full_seconds{database="main",instance="a",limit="disk"} 90000x400
  lapse_storage_full_seconds{database="main",instance="b",limit="disk"} +Inf+0x400
  gnatsd_varz_jetstream_stats_storage{instance="n"} 10e9+100e3x400
  gnatsd_varz_jetstream_config_max_storage{instance="n"} 20e9x400
  lapse_projection_disk_available_bytes{database="main",instance="a"} 50e9x400
  lapse_projection_disk_size_bytes{database="main",instance="a"} 100e9x400
  lapse_projection_l0_sublevels{database="main",instance="a"} 2x400
  lapse_role_changes_total{database="main",instance="a"} 1x400
  lapse_log_foreign_messages_total{database="main",instance="a"} 0x400
  lapse:expiry_lateness_seconds:p99_5m{database="main"} 0.01x400
  lapse_expiry_lateness_objective_seconds{database="main",instance="a"} 1x400
  lapse_expiry_lateness_objective_seconds{database="main",instance="b"} 1x400
`

// TestAlerts: no alert fires while all is well, and each fires on its condition. The
// duration of the condition (for:) is not tested.
func TestAlerts(t *testing.T) {
	cases := []struct {
		name  string
		alert string // that fires, alone or with those in also
		of    string // its database, main if empty
		also  []string
		// replace holds series that replace those of two with the same name and labels.
		replace []string
		add     []string // series beside those of two
	}{
		{name: "all is well"},
		{name: "nobody writes", alert: "LapseNoWriter", replace: []string{`lapse_role{database="main",instance="a",role="writer"} 0x400`}},
		{name: "nobody is there any more", alert: "LapseNoWriter", replace: []string{
			`lapse_role{database="main",instance="a",role="writer"} 1x100 _x300`, `lapse_role{database="main",instance="b",role="writer"} 0x100 _x300`}},
		{name: "nobody is there any more for one of two databases", alert: "LapseNoWriter", of: "other",
			add: []string{`lapse_role{database="other",instance="c",role="writer"} 1x100 _x300`}},
		{name: "nobody was ever there", alert: "LapseNoWriter", of: "none", replace: []string{
			`lapse_role{database="main",instance="a",role="writer"} _x400`, `lapse_role{database="main",instance="b",role="writer"} _x400`}},
		{name: "two write", alert: "LapseTwoWriters", replace: []string{`lapse_role{database="main",instance="b",role="writer"} 1x400`}},
		{name: "one is down", alert: "LapseDown", replace: []string{`up{job="lapse",instance="a"} 0x400`}},
		{name: "one is not ready", alert: "LapseNotReady", replace: []string{`lapse_ready{database="main",instance="b"} 0x400`}},
		{name: "the log is unreachable", alert: "LapseLogOutOfReach", replace: []string{`lapse_log_unreachable{database="main",instance="a"} 1x400`}},
		{name: "a standby does not reach the lease", alert: "LapseCannotTakeOver", replace: []string{`lapse_lease_unreachable{database="main",instance="b"} 1x400`}},
		{name: "NATS is away", alert: "LapseNATSAway", replace: []string{`lapse_nats_connected{database="main",instance="a",connection="log"} 0x400`}},
		{name: "appends fail", alert: "LapseAppendsFail", replace: []string{`lapse_append_failures_total{database="main",instance="a"} 0+1x400`}},
		{name: "expiries are late", alert: "LapseLate", replace: []string{`lapse:expiry_lateness_seconds:p99_5m{database="main"} 2.5x400`}},
		{name: "more and more are overdue", alert: "LapseOverdueGrows", replace: []string{`lapse_documents_overdue{database="main",instance="a"} 2000+100x400`}},
		{name: "a storm, which gets less", replace: []string{`lapse_documents_overdue{database="main",instance="a"} 1000000-1000x400`}},
		{name: "a standby counts what the writer has not expired", replace: []string{`lapse_documents_overdue{database="main",instance="b"} 2000+100x400`}},
		{name: "mutations pile up", alert: "LapseMutationsBehind", replace: []string{`lapse_mutations_behind{database="main",instance="a"} 20000+100x400`}},
		{name: "one folds too slowly", alert: "LapseFoldLag", replace: []string{`lapse_fold_lag_seconds{database="main",instance="a"} 0+15x400`}},
		{name: "the clock is wrong", alert: "LapseClockSuspect", replace: []string{`lapse_clock_suspect{database="main",instance="a"} 1x400`}},
		{name: "requests are refused", alert: "LapseRefuses", replace: []string{`lapse_requests_total{database="main",instance="a",operation="document.upsert",code="429"} 0+15x400`}},
		{name: "retention fails", alert: "LapseRetentionFails", replace: []string{`lapse_retention_failures_total{database="main",instance="a"} 0x200 1x50 2x50 3x100`}},
		{name: "snapshots are old", alert: "LapseSnapshotOld", replace: []string{`lapse_snapshot_last_timestamp_seconds{database="main",instance="a"} -30000x400`}},
		{name: "snapshots are old, and nothing happens", replace: []string{
			`lapse_snapshot_last_timestamp_seconds{database="main",instance="a"} -30000x400`, `lapse_events_total{database="main",instance="a",type="DocumentCreated"} 7x400`}},
		{name: "the log is nearly full", alert: "LapseLogNearlyFull", replace: []string{
			`lapse_storage_left_bytes{database="main",instance="a",limit="disk"} 19e9x400`, `lapse_storage_left_bytes{database="main",instance="b",limit="disk"} 19e9x400`}},
		{name: "the log is full in a day", alert: "LapseLogFullSoon", replace: []string{`lapse_storage_full_seconds{database="main",instance="a",limit="disk"} 80000x400`}},
		{name: "a NATS node is nearly full", alert: "LapseNodeNearlyFull", replace: []string{`gnatsd_varz_jetstream_stats_storage{instance="n"} 17e9x400`}},
		{name: "a NATS node is full in a day", alert: "LapseNodeFullSoon", replace: []string{`gnatsd_varz_jetstream_stats_storage{instance="n"} 10e9+2e6x400`}},
		{name: "the disk is nearly full", alert: "LapseDiskNearlyFull", replace: []string{`lapse_projection_disk_available_bytes{database="main",instance="a"} 9e9x400`}},
		{name: "the disk fills up", alert: "LapseDiskFillsUp", replace: []string{`lapse_projection_disk_available_bytes{database="main",instance="a"} 40e9-50e6x400`}},
		{name: "compaction falls behind", alert: "LapseProjectionStalls", replace: []string{`lapse_projection_l0_sublevels{database="main",instance="a"} 20x400`}},
		{name: "the role changes again and again", alert: "LapseRoleFlaps", replace: []string{`lapse_role_changes_total{database="main",instance="a"} 0+1x400`}},
		{name: "the log has something foreign", alert: "LapseForeignMessages", replace: []string{`lapse_log_foreign_messages_total{database="main",instance="a"} 0x300 1x100`}},
	}
	all := rules(t)
	fired := make(map[string]bool)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := firing(t, all, load(t, c.replace)+"  "+strings.Join(c.add, "\n  "), cmp.Or(c.of, "main"))
			want := c.also
			if c.alert != "" {
				want = append(want, c.alert)
				fired[c.alert] = true
			}
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%q fire, want %q", got, want)
			}
		})
	}
	for _, r := range all {
		if r.Alert != "" && !fired[r.Alert] {
			t.Errorf("no case has %s fire", r.Alert)
		}
	}
}

// load returns two with some series replaced.
func load(t *testing.T, replace []string) string {
	t.Helper()
	lines := strings.Split(two, "\n")
	for _, series := range replace {
		name, _, _ := strings.Cut(series, "} ")
		i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), name+"} ") })
		if i < 0 {
			t.Fatalf("there is no %s}", name)
		}
		lines[i] = "  " + series
	}
	return strings.Join(lines, "\n")
}

// firing returns the alerts whose expression holds after 90 minutes. They must be about
// database, which is "none" if no series names one.
func firing(t *testing.T, all []rulefmt.Rule, series, database string) (names []string) {
	t.Helper()
	storage := promqltest.LoadedStorage(t, series)
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, promqltest.DefaultMaxSamplesPerQuery)
	at := time.Unix(0, 0).Add(90 * time.Minute)
	for _, r := range all {
		if r.Alert == "" {
			continue
		}
		query, err := engine.NewInstantQuery(context.Background(), storage, nil, r.Expr, at)
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		result := query.Exec(context.Background())
		vector, err := result.Vector()
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		if len(vector) > 0 {
			names = append(names, r.Alert)
			if of := cmp.Or(vector[0].Metric.Get("database"), "none"); (of != database || len(vector) > 1) && r.Alert != "LapseDown" && !strings.HasPrefix(r.Alert, "LapseNode") {
				t.Errorf("%s is of database %q, want %s: %s", r.Alert, of, database, vector)
			}
		}
		query.Close()
	}
	slices.Sort(names)
	return names
}

// TestLatenessRecordingRule: the recording rule computes the p99 lateness of the histogram.
func TestLatenessRecordingRule(t *testing.T) {
	var expr string
	for _, r := range rules(t) {
		if r.Record == "lapse:expiry_lateness_seconds:p99_5m" {
			expr = r.Expr
		}
	}
	storage := promqltest.LoadedStorage(t, `load 15s
  lapse_expiry_lateness_seconds_bucket{database="main",instance="a",le="0.1"} 0+90x100
  lapse_expiry_lateness_seconds_bucket{database="main",instance="a",le="1"} 0+90x100
  lapse_expiry_lateness_seconds_bucket{database="main",instance="a",le="5"} 0+100x100
  lapse_expiry_lateness_seconds_bucket{database="main",instance="a",le="+Inf"} 0+100x100
`)
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, promqltest.DefaultMaxSamplesPerQuery)
	query, err := engine.NewInstantQuery(context.Background(), storage, nil, expr, time.Unix(1500, 0))
	check(t, err)
	defer query.Close()
	vector, err := query.Exec(context.Background()).Vector()
	if err != nil || len(vector) != 1 {
		t.Fatalf("%v: %v", vector, err)
	}
	if got := fmt.Sprintf("%s %.1f", vector[0].Metric, vector[0].F); got != labels.FromStrings("database", "main").String()+" 4.6" {
		t.Errorf("the record is %s", got)
	}
}

// TestPrometheusConfig: the configuration is valid and includes the file of rules beside
// it.
func TestPrometheusConfig(t *testing.T) {
	c, err := config.LoadFile("../../../deploy/prometheus/prometheus.yml", false, slog.New(slog.DiscardHandler))
	check(t, err)
	if len(c.RuleFiles) != 1 || filepath.Clean(c.RuleFiles[0]) != filepath.Clean(rulesFile) ||
		len(c.ScrapeConfigs) != 2 || c.ScrapeConfigs[0].JobName != "lapse" || c.ScrapeConfigs[1].JobName != "nats" {
		t.Errorf("it has the rules %q and scrapes %v", c.RuleFiles, c.ScrapeConfigs)
	}
}
