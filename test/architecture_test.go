package test

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/test/child"
)

// Dependencies point one way: each package may import the packages of lapse in ours, and
// none whose path has an element that begins with one of not. The rooms of processor are
// in the order of the flow: each may import those above it.
var architecture = map[string]struct{ ours, not []string }{
	"schema":            {ours: []string{"schema/values"}, not: []string{"nats-io", "pebble"}},
	"schema/asyncapi":   {ours: []string{"schema"}, not: []string{"nats-io", "pebble"}},
	"schema/values":     {not: []string{"nats-io", "pebble", "time"}},
	"logread":           {ours: []string{"schema"}, not: []string{"nats-server", "pebble"}},
	"expiry":            {not: []string{"nats-io", "pebble", "time"}},
	"projections":       {ours: []string{"schema", "schema/values"}, not: []string{"nats-io", "time"}},
	"projections/query": {ours: []string{"schema", "schema/values", "projections"}, not: []string{"nats-io", "pebble"}},

	"processor/observe":  {ours: []string{"schema"}, not: []string{"nats-io", "pebble"}},
	"processor/machine":  {ours: []string{"schema", "projections", "expiry"}, not: []string{"nats-io", "pebble", "time", "sync", "context"}},
	"processor/clock":    {ours: []string{"schema", "processor/observe"}, not: []string{"nats-io"}},
	"processor/eventlog": {ours: []string{"schema", "logread", "projections", "processor/observe"}},
	"processor/lease":    {ours: []string{"schema"}, not: []string{"pebble"}},
	"processor/spread":   {ours: []string{"schema"}, not: []string{"nats-io", "pebble"}},
	"processor/answer":   {ours: []string{"schema", "projections", "projections/query", "processor/machine"}, not: []string{"nats-io", "pebble", "sync"}},
	"processor/snapshot": {ours: []string{"schema", "projections", "processor/observe", "processor/clock", "processor/eventlog"}},
	"processor/writer":   {ours: []string{"schema", "projections", "processor/observe", "processor/machine", "processor/clock", "processor/eventlog"}, not: []string{"pebble"}},
	"processor/peers":    {ours: []string{"schema", "projections", "processor/observe", "processor/machine", "processor/clock", "processor/eventlog", "processor/answer", "processor/writer"}, not: []string{"pebble"}},
	"processor/service": {ours: []string{"schema", "schema/asyncapi", "projections", "projections/query", "processor/observe", "processor/machine", "processor/clock", "processor/eventlog",
		"processor/lease", "processor/answer", "processor/snapshot", "processor/writer", "processor/peers"}, not: []string{"pebble"}},
	"processor/monitor": {ours: []string{"schema", "projections", "processor/observe"}, not: []string{"pebble"}},
	"processor/offline": {ours: []string{"schema", "projections", "projections/query", "processor/machine", "processor/answer"}, not: []string{"jetstream"}},
	"processor": {ours: []string{"schema", "internal/memory", "projections", "projections/query", "processor/observe", "processor/machine", "processor/clock", "processor/eventlog",
		"processor/lease", "processor/snapshot", "processor/writer", "processor/peers", "processor/service", "processor/monitor"}},

	"processor/processortest": {ours: []string{"schema", "projections", "processor", "processor/observe", "processor/machine", "processor/eventlog", "processor/lease",
		"processor/snapshot", "processor/writer", "processor/service", "processor/monitor", "processor/embedded", "test/conform", "test/stress"}}, // for tests

	"processor/gate":            {ours: []string{"schema", "processor/eventlog"}},
	"processor/embedded":        {ours: []string{"schema", "processor/eventlog", "processor/gate", "processor/embedded/blocks"}},
	"processor/embedded/blocks": {not: []string{"nats-io", "pebble"}},

	"catalog": {ours: []string{"schema", "logread", "processor/eventlog", "processor/lease", "processor/snapshot"}, not: []string{"pebble"}},
	"backup":  {ours: []string{"schema", "logread", "catalog", "processor/eventlog", "processor/snapshot", "processor/embedded/blocks"}},

	"audit":           {ours: []string{"schema"}, not: []string{"nats-io"}},
	"client":          {ours: []string{"schema", "schema/values", "logread"}, not: []string{"nats-server", "pebble"}},
	"client/importer": {ours: []string{"schema", "schema/values", "client"}, not: []string{"nats-io", "pebble"}},
	"client/action":   {ours: []string{"client"}, not: []string{"nats-io", "pebble"}},
	"cosmos/sql":      {ours: []string{"schema/values"}, not: []string{"nats-io", "pebble", "time", "net"}},
	"webserver":       {},
	"console":         {ours: []string{"schema", "schema/values", "client", "client/importer", "webserver"}, not: []string{"nats-io", "pebble"}},
	"cosmos":          {ours: []string{"schema", "schema/values", "client", "webserver", "cosmos/sql"}, not: []string{"nats-io", "pebble"}},
	"host": {ours: []string{"schema", "internal/memory", "processor", "processor/observe", "processor/peers", "processor/spread", "processor/clock", "processor/eventlog", "processor/monitor", "processor/gate", "processor/embedded",
		"backup", "catalog", "client", "webserver", "console", "cosmos"}, not: []string{"pebble"}},
	"cmd/lapse": {ours: []string{"schema", "schema/values", "processor", "processor/observe", "processor/machine", "processor/offline", "processor/answer",
		"projections", "projections/query", // the texts of their options
		"backup", "catalog", "client", "client/action", "client/importer", "webserver", "console", "cosmos", "audit", "host"}, not: []string{"nats-server", "pebble"}},
	"deploy":          {}, // tests only
	"docs":            {}, // tests only
	"docs/quickstart": {ours: []string{"client"}, not: []string{"nats-server", "pebble"}},
	"internal/memory": {not: []string{"nats-io", "pebble"}},
	"internal/model":  {}, // tests only
	"deploy/keys":     {not: []string{"nats-server", "nats.go", "pebble"}},

	"lapsetest":        {ours: []string{"schema", "processor/machine", "processor/offline", "client"}, not: []string{"nats-server", "pebble"}},
	"lapsetest/bubble": {ours: []string{"schema", "projections", "processor", "processor/eventlog", "client"}},
}

// room matches an entry of the list in docs/contributing/architecture.md.
var room = regexp.MustCompile(`(?m)^- \[([a-z/]+)\]`)

// TestDependenciesPointOneWay: packages import what architecture allows, and the table of
// rooms in docs/contributing/architecture.md lists each package after those that it may import.
func TestDependenciesPointOneWay(t *testing.T) {
	const module = "github.com/lapsedb/lapse/"
	out, err := child.Tool(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "../...").Output()
	check(t, err)
	page, err := os.ReadFile("../docs/contributing/architecture.md")
	check(t, err)
	_, rooms, _ := strings.Cut(string(page), "## Rooms\n")
	listed := map[string]int{}
	for i, row := range room.FindAllStringSubmatch(rooms, -1) {
		listed[row[1]] = i + 1
	}
	for name, rule := range architecture {
		if top, _, _ := strings.Cut(name, "/"); slices.Contains([]string{"deploy", "docs", "internal"}, top) || name == "processor/processortest" {
			continue // for tests and tools
		}
		for _, below := range append([]string{""}, rule.ours...) {
			if listed[below] >= listed[name] {
				t.Errorf("docs/contributing/architecture.md does not list %s, after %s", name, below)
			}
		}
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

// TestMachineIsPure: the state machine has no goroutines and no channels. That it imports
// no clock is part of TestDependenciesPointOneWay.
func TestMachineIsPure(t *testing.T) {
	files, err := filepath.Glob("../processor/machine/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, 0)
		check(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType, *ast.SendStmt:
				t.Errorf("%s has a %T", name, n)
			}
			return true
		})
	}
}

// shared matches calls that change what all tests of a process share, or that start a
// process with what they share.
var shared = regexp.MustCompile(`\b(os\.(Setenv|Unsetenv|Clearenv|Environ|Chdir|StartProcess)|exec\.Command(Context)?)\(`)

// mayShare are the files and directories whose calls do not reach another test.
var mayShare = []string{
	"cmd/lapse/app.go",       // the program itself
	"client/action/exec.go",  // the commands of users
	"cmd/lapse/main_test.go", // before the tests
	"test/child/child.go",
	"test/bench/table/",           // a program
	"test/helm/", "test/release/", // modules without lapse, whose tests follow one another
}

// TestNothingIsShared: tests run side by side and start processes by package child only, so
// that neither the shell of a developer nor another test reaches these.
func TestNothingIsShared(t *testing.T) {
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		if name := d.Name(); d.IsDir() && name != "." && (name[0] == '.' || slices.Contains([]string{"data", "node_modules", "secrets"}, name)) {
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".go" || slices.ContainsFunc(mayShare, func(name string) bool { return strings.HasPrefix(path, name) }) {
			return err
		}
		text, err := os.ReadFile(filepath.Join("..", path))
		for _, call := range shared.FindAllString(string(text), -1) {
			t.Errorf("%s calls %s): use package test/child for a process, and pass what differs as an argument", path, call)
		}
		return err
	})
	check(t, err)
}
