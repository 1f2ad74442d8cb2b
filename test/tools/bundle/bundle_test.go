package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/lapsedb/lapse/test/tools/npm"
)

var update = flag.Bool("update", false, "write the bundles into console/static/vendor")

const target = "../../../console/static/vendor"

// TestBundles: the bundles that are in the tree are those that esbuild makes of the packages
// in package.json. With -update it writes them.
func TestBundles(t *testing.T) {
	modules := npm.Install(t)
	result := api.Build(api.BuildOptions{
		EntryPoints: []string{"libraries.js", "editor.js"}, Outdir: target, NodePaths: []string{modules},
		Bundle: true, Format: api.FormatESModule, Target: api.ES2022, Charset: api.CharsetUTF8,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true, LegalComments: api.LegalCommentsNone,
		Loader: map[string]api.Loader{".css": api.LoaderText}, Metafile: true,
	})
	for _, fault := range result.Errors {
		t.Fatal(fault.Text, fault.Location)
	}
	var meta struct {
		Inputs map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(result.Metafile), &meta); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	var list, licences bytes.Buffer
	list.WriteString("# Libraries of the console: bundles of npm packages, which `go -C test/tools test ./bundle -update` makes.\n\n# package  version  licence\n")
	licences.WriteString("The bundles in this directory have these packages.\n")
	for _, name := range packages(slices.Collect(maps.Keys(meta.Inputs))) {
		text, err := os.ReadFile(filepath.Join(modules, name, "package.json"))
		if err != nil {
			t.Fatal(err)
		}
		var about struct{ Version, License string }
		if err := json.Unmarshal(text, &about); err != nil {
			t.Fatal(err)
		}
		licence, err := os.ReadFile(filepath.Join(modules, name, "LICENSE"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&list, "%s  %s  %s\n", name, about.Version, about.License)
		fmt.Fprintf(&licences, "\n== %s %s\n\n%s\n", name, about.Version, bytes.TrimSpace(licence))
	}
	list.WriteString("\n# file  sha256\n")
	files["LICENSES"] = licences.Bytes()
	for _, file := range result.OutputFiles {
		files[filepath.Base(file.Path)] = file.Contents
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&list, "%s  %x\n", name, sha256.Sum256(files[name]))
	}
	files["VERSIONS"] = list.Bytes()
	for name, content := range files {
		path := filepath.Join(target, name)
		if *update {
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
		} else if was, err := os.ReadFile(path); err != nil || !bytes.Equal(was, content) {
			t.Errorf("%s is not what the packages make (%v): run `go -C test/tools test ./bundle -update`", name, err)
		}
	}
}

// packages returns the names of the packages that files are of, sorted.
func packages(files []string) (names []string) {
	for _, file := range files {
		_, path, ok := strings.Cut(file, "node_modules/")
		if !ok {
			continue
		}
		parts := strings.SplitN(path, "/", 3)
		if name := parts[0]; strings.HasPrefix(name, "@") {
			names = append(names, name+"/"+parts[1])
		} else {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
