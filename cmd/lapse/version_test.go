package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

// setBuild changes what the build is said to be until the end of the test.
func setBuild(t *testing.T, v, c, d string) {
	t.Helper()
	oldVersion, oldCommit, oldDate := version, commit, date
	t.Cleanup(func() { version, commit, date = oldVersion, oldCommit, oldDate })
	version, commit, date = v, c, d
}

const aCommit = "42de0ee94d35d3b1c7c4f0f6c3f2d9a0b1c2d3e4"

// TestDescribeBuild: -ldflags win over what Go stores, and a build that has neither is (devel).
func TestDescribeBuild(t *testing.T) {
	checkout := &debug.BuildInfo{
		Main: debug.Module{Version: "v0.3.0"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: aCommit},
			{Key: "vcs.time", Value: "2026-11-26T07:45:12Z"},
		},
	}
	untagged := &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: append(checkout.Settings, debug.BuildSetting{Key: "vcs.modified", Value: "true"})}
	for _, build := range []struct {
		name                  string
		info                  *debug.BuildInfo
		version, commit, date string
		want                  [3]string
	}{
		{"checkout", checkout, "", "", "", [3]string{"0.3.0", aCommit, "2026-11-26T07:45:12Z"}},
		{"ldflags", checkout, "0.3.1", "abc", "2026-12-01T00:00:00Z", [3]string{"0.3.1", "abc", "2026-12-01T00:00:00Z"}},
		{"go install", &debug.BuildInfo{Main: debug.Module{Version: "v0.3.0"}}, "", "", "", [3]string{"0.3.0", "", ""}},
		{"version of Go", &debug.BuildInfo{Main: debug.Module{Version: "v0.3.1-0.20261126074512-42de0ee94d35+dirty"}, Settings: untagged.Settings}, "", "", "", [3]string{"0.3.1-0.20261126074512-42de0ee94d35+dirty", aCommit, "2026-11-26T07:45:12Z"}},
		{"no version", untagged, "", "", "", [3]string{"0.0.0-20261126074512-42de0ee94d35+dirty", aCommit, "2026-11-26T07:45:12Z"}},
		{"commit only", &debug.BuildInfo{}, "", aCommit, "", [3]string{"(devel)", aCommit, ""}},
		{"go run", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "", "", "", [3]string{"(devel)", "", ""}},
		{"archive", &debug.BuildInfo{}, "", "", "", [3]string{"(devel)", "", ""}},
	} {
		v, c, d := describeBuild(build.info, build.version, build.commit, build.date)
		if got := [3]string{v, c, d}; got != build.want {
			t.Errorf("%s: %q, want %q", build.name, got, build.want)
		}
	}
}

// TestBuildNames: --version, and the version in status, which is semantic, have the commit and
// its date once.
func TestBuildNames(t *testing.T) {
	for _, build := range []struct{ version, commit, date, line, status string }{
		{"0.3.0", aCommit, "2026-11-26T07:45:12Z", "lapse 0.3.0, commit 42de0ee94d35, 2026-11-26T07:45:12Z, go", "0.3.0+20261126.42de0ee94d35"},
		{"0.3.0+dirty", aCommit, "2026-11-26T07:45:12Z", "lapse 0.3.0+dirty, commit", "0.3.0+dirty.20261126.42de0ee94d35"},
		{"0.3.1-0.20261126074512-42de0ee94d35+dirty", aCommit, "2026-11-26T07:45:12Z", "lapse 0.3.1-0.2026", "0.3.1-0.20261126074512-42de0ee94d35+dirty"},
		{"0.3.0", "", "", "lapse 0.3.0, go", "0.3.0"},
		{"(devel)", "", "", "lapse (devel), go", "0.0.0-devel"},
	} {
		setBuild(t, build.version, build.commit, build.date)
		if got := versionLine(); !strings.HasPrefix(got, build.line) {
			t.Errorf("--version says %q, want %q…", got, build.line)
		}
		if got := semver(); got != build.status || !semantic.MatchString(got) {
			t.Errorf("status says %q, want %q", got, build.status)
		}
	}
}

// TestManPages: lapse man writes a page for each command, the same bytes each time, none
// for hidden ones, and Markdown takes nothing of the texts for markup.
func TestManPages(t *testing.T) {
	setBuild(t, "0.3.0", aCommit, "2026-11-26T07:45:12Z")
	write := func() map[string]string {
		dir := t.TempDir()
		var out bytes.Buffer
		if code := newApp(strings.NewReader(""), &out, &out).run(t.Context(), []string{"man", dir}); code != 0 || out.Len() > 0 {
			t.Fatalf("exit %d: %s", code, out.String())
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		check(t, err)
		pages := make(map[string]string)
		for _, file := range files {
			text, err := os.ReadFile(file)
			check(t, err)
			pages[filepath.Base(file)] = string(text)
		}
		return pages
	}
	pages := write()
	for name, text := range write() {
		if pages[name] != text {
			t.Errorf("%s differs between two runs", name)
		}
	}
	if title := `.TH "LAPSE-SERVE" "1" "Nov 2026" "lapse 0.3.0" "lapse"`; !strings.Contains(pages["lapse-serve.1"], title) {
		t.Errorf("lapse-serve.1 begins with %.100s", pages["lapse-serve.1"])
	}
	fonts := regexp.MustCompile(`\\f[A-Z]`)
	for name, texts := range map[string][]string{
		"lapse.1":                 {"lapse-serve(1)", "lapse document upsert sessions"},
		"lapse-serve.1":           {"NAME[,NAME…] of the databases, or * for all", "--store-dir", "LAPSE_STORE_DIR is --store-dir"},
		"lapse-document-upsert.1": {"--expire-at"},
	} {
		page := fonts.ReplaceAllString(pages[name], "")
		for _, text := range texts {
			if !strings.Contains(page, text) {
				t.Errorf("%s lacks %q:\n%s", name, text, page)
			}
		}
	}
	for name := range pages {
		if strings.Contains(name, "healthcheck") || name == "lapse-man.1" {
			t.Errorf("%s is of a hidden command", name)
		}
	}
}
