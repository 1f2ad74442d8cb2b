//go:build !no_console

package console

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"path"
	"regexp"
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

// TestEventTypes: the lists of event types in the pages are complete.
func TestEventTypes(t *testing.T) {
	for _, list := range []struct {
		page, before, after string
		has                 func(schema.EventType) bool
	}{
		{"feed", "const types = {", "}", func(schema.EventType) bool { return true }},
		{"feed", "const lasts = [", "]", schema.EventType.EndsDocument},
		{"document", "const lasts = [", "]", schema.EventType.EndsDocument},
		{"document", "versions = [", "]", func(t schema.EventType) bool { return t.MakesVersion() && !t.KeepsContent() }},
		{"document", "const words = {", "MutationRejected", schema.EventType.OnDocument},
	} {
		page, err := embedded.ReadFile("static/pages/" + list.page + ".js")
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(string(page), list.before)
		text, _, _ = strings.Cut(text, list.after)
		names := regexp.MustCompile(`\b(Collection|Document|Mutation)[A-Z]\w+`).FindAllString(text, -1)
		want := slices.DeleteFunc(schema.EventNames(), func(name string) bool { return !list.has(schema.ParseEventType(name)) })
		slices.Sort(names)
		slices.Sort(want)
		if !slices.Equal(names, want) {
			t.Errorf("%s.js, %s: has %v, the types are %v", list.page, list.before, names, want)
		}
	}
}
