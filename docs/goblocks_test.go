package docs

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/lapsedb/lapse/test/child"
)

const module = "github.com/lapsedb/lapse/"

// packages are those that Go blocks may use without importing them.
var packages = map[string]string{
	"context": "context", "errors": "errors", "fmt": stage, "log": stage, "time": "time", "testing": "testing",
	"client": module + "client", "host": module + "host", "schema": module + "schema", "lapsetest": module + "lapsetest", "bubble": module + "lapsetest/bubble",
}

const (
	blocksDir = "docs/testdata/run"
	stage     = module + blocksDir + "/stage"
)

var (
	goBlock  = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	printing = regexp.MustCompile(`(?m)^\t"(fmt|log)"$`)
)

// TestGoBlocks: Go blocks do what the pages say. Each becomes a package of its own, which
// the tests in testdata/run call, all in one binary: a program or fragment runs beside a
// server in a bubble, so that its deadlines pass at once. A block that is part of a file in
// examples, quickstart or client/otel is tested there.
func TestGoBlocks(t *testing.T) {
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	runner, err := os.ReadFile(filepath.Join(top, blocksDir, "run_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var examples strings.Builder
	for path, text := range sources(t) {
		if rel, err := filepath.Rel(root, path); err == nil && (strings.HasPrefix(filepath.ToSlash(rel), "examples/") || strings.HasPrefix(filepath.ToSlash(rel), "docs/quickstart/") || strings.HasPrefix(filepath.ToSlash(rel), "client/otel/")) {
			examples.WriteString(text)
		}
	}
	dir, overlay := t.TempDir(), map[string]string{}
	for page, text := range pages(t) {
		for i, at := range goBlock.FindAllStringSubmatchIndex(text, -1) {
			if block := text[at[2]:at[3]]; strings.Contains(examples.String(), block) || strings.Contains(block, "azcosmos.") { // test/tools/cosmos runs that
				continue
			}
			name := fmt.Sprintf("%s%d", strings.ToLower(strings.TrimSuffix(filepath.Base(page), filepath.Ext(page))), i+1)
			source, err := packageOf(name, filepath.Join(top, page), 1+strings.Count(text[:at[2]], "\n"), text[at[2]:at[3]])
			if err != nil {
				t.Errorf("%s, block %d: %v", page, i+1, err)
				continue
			}
			if !strings.Contains(string(runner), "/"+name+`"`) {
				t.Errorf("%s, block %d: call package %s in %s", page, i+1, name, blocksDir)
			}
			file := filepath.Join(dir, name+".go")
			if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
				t.Fatal(err)
			}
			virtual := filepath.Join(top, blocksDir, name, "block.go")
			if overlay[virtual] != "" {
				t.Errorf("%s: another page has this name", page)
			}
			overlay[virtual] = file
		}
	}
	replaced, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), replaced, 0o600); err != nil {
		t.Fatal(err)
	}
	run := child.Tool(t.Context(), "go", "test", "-count=1", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "./"+blocksDir+"/...")
	run.Dir = top
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// packageOf returns a package with a block. It imports what the block uses and does not
// import, connects and prints by package stage, and exports all functions of the block.
func packageOf(name, page string, line int, block string) (source string, err error) {
	head, first := fmt.Sprintf("package %s; import stage %q\n", name, stage), 0
	if program, ok := strings.CutPrefix(block, "package main\n"); ok {
		block, first = printing.ReplaceAllString(program, fmt.Sprintf("$1 %q", stage)), 1
	} else {
		head += imports(block)
	}
	block = strings.ReplaceAll(block, `client.Connect("nats://127.0.0.1:4222")`, "stage.Connect()")
	source = fmt.Sprintf("%s//line %s:%d\n%s\nvar _ = stage.Run\n", head, page, line+first, block)
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && !f.Name.IsExported() {
			exported := []rune(f.Name.Name)
			exported[0] = unicode.ToUpper(exported[0])
			source += fmt.Sprintf("\nvar %s = %s\n", string(exported), f.Name.Name)
		}
	}
	return source, nil
}

// imports returns the import clauses for the packages that a block uses.
func imports(source string) (clause string) {
	for name, path := range packages {
		if regexp.MustCompile(`\b` + name + `\.[A-Z]`).MatchString(source) {
			clause += fmt.Sprintf("import %s %q\n", name, path)
		}
	}
	return clause
}
