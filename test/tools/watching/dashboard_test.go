package watching

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// histogramPart ends the names of the series of a histogram.
var histogramPart = regexp.MustCompile("_(bucket|count|sum)$")

// TestDashboard: the dashboard is JSON, its expressions are PromQL over exported metrics,
// each metric of the alerts is in a panel, and panels do not overlap.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/grafana/lapse.json")
	check(t, err)
	var dashboard struct {
		UID        string
		Templating struct{ List []struct{ Name string } }
		Panels     []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
		Annotations struct{ List []struct{ Expr string } }
	}
	check(t, json.Unmarshal(text, &dashboard))
	exported, shown := exported(t), make(map[string]bool)
	expression := func(where, expr string) {
		t.Helper()
		// Grafana replaces these variables.
		for variable, value := range map[string]string{"$__rate_interval": "1m", "$database": "main", "$instance": ".*"} {
			expr = strings.ReplaceAll(expr, variable, value)
		}
		if strings.Contains(expr, "$") {
			t.Errorf("%s: nobody replaces the variable in %s", where, expr)
			return
		}
		for _, name := range metricsIn(t, expr) {
			shown[histogramPart.ReplaceAllString(name, "")], shown[name] = true, true
			if !exported[name] && !byExporter[name] && name != "up" {
				t.Errorf("%s names %s, which nobody exports", where, name)
			}
		}
	}
	type place struct{ x, y int }
	taken := make(map[place]string)
	var ids []int
	for _, p := range dashboard.Panels {
		ids = append(ids, p.ID)
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			expression(p.Title, target.Expr)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[place{x, y}]; ok {
					t.Fatalf("%s lies on %s", p.Title, other)
				}
				taken[place{x, y}] = p.Title
			}
		}
	}
	for _, r := range rules(t) {
		for _, name := range metricsIn(t, r.Expr) {
			if name = histogramPart.ReplaceAllString(name, ""); !shown[name] && !strings.Contains(name, ":") {
				t.Errorf("no panel shows %s, which %s%s uses", name, r.Alert, r.Record)
			}
		}
	}
	for _, a := range dashboard.Annotations.List {
		expression("annotation", a.Expr)
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != len(dashboard.Panels) || len(ids) < 20 {
		t.Errorf("there are %d panels with these ids: %d", len(dashboard.Panels), ids)
	}
	if len(dashboard.Templating.List) != 3 || dashboard.UID != "lapse" {
		t.Errorf("the variables are %v", dashboard.Templating.List)
	}
}
