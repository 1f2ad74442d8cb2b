//go:build !no_console

package console

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// TestVendorChecksums: the bundles of libraries are those of which VERSIONS has the sums. That
// they are made of their npm packages is TestBundles in test/tools.
func TestVendorChecksums(t *testing.T) {
	list, err := embedded.ReadFile("static/vendor/VERSIONS")
	if err != nil {
		t.Fatal(err)
	}
	found, err := fs.Glob(embedded, "static/vendor/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		content, err := embedded.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if base := path.Base(name); base != "VERSIONS" && !strings.Contains(string(list), fmt.Sprintf("\n%s  %x\n", base, sha256.Sum256(content))) {
			t.Errorf("VERSIONS has not the sum of %s", base)
		}
	}
}

// TestPagesSelfContained: no page refers to another site or turns text into HTML or code.
func TestPagesSelfContained(t *testing.T) {
	err := fs.WalkDir(embedded, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.Contains(name, "/vendor/") {
			return err
		}
		content, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		for _, part := range []string{"https://", `href="/`, `src="/`, "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "dangerouslySetInnerHTML", "eval(", "new Function", "document.cookie"} {
			if strings.Contains(string(content), part) {
				t.Errorf("%s has %s", name, part)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFeedTypes: the feed page offers every event type that readers see.
func TestFeedTypes(t *testing.T) {
	page, err := embedded.ReadFile("static/pages/feed.js")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "const types = [")
	list, _, _ = strings.Cut(list, "]")
	var names []string
	for name := range strings.SplitSeq(list, ", ") {
		names = append(names, strings.Trim(name, "'"))
	}
	want := schema.EventNames()
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("the page offers %v, the types are %v", names, want)
	}
}
