package test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Dependencies point one way: each package may import these of ours, and none
// whose path has an element that begins with one of not.
var architecture = map[string]struct{ ours, not []string }{
	"schema":                    {ours: []string{"values"}, not: []string{"nats-io", "pebble"}},
	"schema/asyncapi":           {ours: []string{"schema"}, not: []string{"nats-io", "pebble"}},
	"values":                    {not: []string{"nats-io", "pebble", "time"}},
	"expiry":                    {not: []string{"nats-io", "pebble", "time"}},
	"projections":               {ours: []string{"schema", "values"}, not: []string{"nats-io", "time"}},
	"query":                     {ours: []string{"schema", "values", "projections"}, not: []string{"nats-io", "pebble"}},
	"processor":                 {ours: []string{"schema", "schema/asyncapi", "expiry", "projections", "query"}},
	"processor/embedded":        {ours: []string{"schema", "processor/gate", "processor/embedded/blocks"}},
	"processor/embedded/blocks": {not: []string{"nats-io", "pebble"}},
	"processor/gate":            {ours: []string{"schema"}},
	"audit":                     {ours: []string{"schema"}, not: []string{"nats-io"}},
	"client":                    {ours: []string{"schema"}, not: []string{"nats-server", "pebble"}},
	"cmd/lapse":                 {ours: []string{"schema", "query", "processor", "processor/embedded", "processor/gate", "client", "audit"}, not: []string{"pebble"}},
	"deploy":                    {}, // tests only
	"deploy/keys":               {not: []string{"nats-server", "nats.go", "pebble"}},

	"lapsetest":        {ours: []string{"schema", "processor", "client"}, not: []string{"nats-server", "pebble"}},
	"lapsetest/bubble": {ours: []string{"schema", "projections", "processor", "client"}},
}

func TestDependenciesPointOneWay(t *testing.T) {
	const module = "github.com/lapsedb/lapse/"
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "../...").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		name := strings.TrimPrefix(fields[0], module)
		rule, ok := architecture[name]
		if !ok {
			if !strings.HasPrefix(name, "test") {
				t.Errorf("package %s is not in the architecture: say what it may import", name)
			}
			continue
		}
		seen++
		for _, imported := range fields[1:] {
			if ours, ok := strings.CutPrefix(imported, module); ok && !slices.Contains(rule.ours, ours) {
				t.Errorf("%s imports %s, it may import %v of ours", name, ours, rule.ours)
			}
			for _, not := range rule.not {
				if imported == not || strings.Contains(imported, "/"+not) {
					t.Errorf("%s imports %s, which it must know nothing of", name, imported)
				}
			}
		}
	}
	if seen != len(architecture) {
		t.Errorf("%d of %d packages found", seen, len(architecture))
	}
}
