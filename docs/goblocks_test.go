package docs

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/lapsedb/lapse/"

// packages are those that Go blocks may use without importing them.
var packages = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "log": "log", "time": "time", "testing": "testing",
	"client": module + "client", "lapsetest": module + "lapsetest", "bubble": module + "lapsetest/bubble",
}

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// TestGoBlocks: Go blocks compile. A block without a package clause gets one, and imports
// for the packages it uses.
func TestGoBlocks(t *testing.T) {
	blocks := 0
	files := token.NewFileSet()
	imported := importer.ForCompiler(files, "gc", exports(t))
	for name, text := range pages(t) {
		for i, block := range goBlock.FindAllStringSubmatch(text, -1) {
			blocks++
			source := block[1]
			if !strings.HasPrefix(source, "package ") {
				source = "package p\n" + imports(source) + source
			}
			file, err := parser.ParseFile(files, fmt.Sprintf("%s, block %d", name, i+1), source, parser.SkipObjectResolution)
			if err != nil {
				t.Error(err)
				continue
			}
			config := types.Config{Importer: imported, Error: func(err error) { t.Error(err) }}
			_, _ = config.Check("p", files, []*ast.File{file}, nil) // config.Error reports the errors
		}
	}
	if blocks < 4 {
		t.Errorf("only %d Go blocks were found", blocks)
	}
}

// imports returns the import clauses for the packages that a block uses.
func imports(source string) (clause string) {
	for name, path := range packages {
		if regexp.MustCompile(`\b` + name + `\.[A-Z]`).MatchString(source) {
			clause += fmt.Sprintf("import %q\n", path)
		}
	}
	return clause
}

// exports returns a function that opens the compiler's export data of a package.
func exports(t *testing.T) func(path string) (io.ReadCloser, error) {
	t.Helper()
	var paths []string
	for _, path := range packages {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)...)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("a Go block imports %s: add it to packages", path)
		}
		return os.Open(files[path])
	}
}
