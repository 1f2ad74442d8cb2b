//go:build !no_console

package console

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// TestVendorChecksums: the libraries and licences have the checksums of their npm packages.
func TestVendorChecksums(t *testing.T) {
	list, err := embedded.ReadFile("static/vendor/VERSIONS")
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(list)) {
		if fields := strings.Fields(line); len(fields) == 6 && fields[0] != "#" {
			sums[fields[0]] = fields[5]
		}
	}
	found, err := fs.Glob(embedded, "static/vendor/*")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, name := range found {
		content, err := embedded.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		base := path.Base(name)
		if base == "VERSIONS" {
			continue
		}
		sum := sha256.Sum256(content)
		if got := hex.EncodeToString(sum[:]); got != sums[base] {
			t.Errorf("%s has the sum %s, VERSIONS says %q", base, got, sums[base])
		}
		delete(sums, base)
		if !strings.HasPrefix(base, "LICENSE") {
			total += len(content)
		}
	}
	for name := range sums {
		t.Errorf("%s is in VERSIONS only", name)
	}
	if total > 100<<10 {
		t.Errorf("the libraries have %d bytes", total)
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
