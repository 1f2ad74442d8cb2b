// Package docs tests the manual: its links and names resolve, its Go runs, and its
// generated pages are up to date. Package test runs its shell blocks.
package docs

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/schema/asyncapi"
	"github.com/lapsedb/lapse/test/conform"
)

var update = flag.Bool("update", false, "write the generated pages")

const root = ".."

// pages returns the text of every page below the root, by its path relative to the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (d.Name()[0] == '.' || slices.Contains([]string{"testdata", "data", "node_modules", "secrets"}, d.Name())) {
				return filepath.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(name); ext == ".md" || name == "llms.txt" {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all[filepath.ToSlash(name)] = string(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	fenced     = regexp.MustCompile("(?ms)^```.*?^```$")
	codeSpan   = regexp.MustCompile("`[^`\n]*`")
	inlineLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	definition = regexp.MustCompile(`(?m)^\[([^\]]+)\]: (\S+)$`)
	reference  = regexp.MustCompile(`\]\[([^\]]+)\]`)
	fileLink   = regexp.MustCompile(`\[([\w/]+\.go)\](?:\[([^\]]+)\]|\(([^)\s]+)\))`)
	heading    = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		slug := strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")
		for n, unique := 0, slug; ; unique = fmt.Sprintf("%s-%d", slug, n) {
			if !found[unique] {
				found[unique] = true
				break
			}
			n++
		}
	}
	return found
}

// TestLinks: every relative link and anchor of every page resolves, and a link whose text
// is a Go file points to that file.
func TestLinks(t *testing.T) {
	all := pages(t)
	for name, text := range all {
		prose := fenced.ReplaceAllString(text, "")
		defined := map[string]string{}
		var targets []string
		for _, d := range definition.FindAllStringSubmatch(prose, -1) {
			defined[d[1]] = d[2]
			targets = append(targets, d[2])
		}
		prose = codeSpan.ReplaceAllString(prose, "`")
		for _, l := range inlineLink.FindAllStringSubmatch(prose, -1) {
			targets = append(targets, l[1])
		}
		for _, r := range reference.FindAllStringSubmatch(prose, -1) {
			if defined[r[1]] == "" {
				t.Errorf("%s: [%s] is not defined", name, r[1])
			}
		}
		for _, l := range fileLink.FindAllStringSubmatch(prose, -1) {
			if target := cmp.Or(l[3], defined[l[2]]); !strings.HasSuffix(target, "/"+l[1]) {
				t.Errorf("%s: [%s] goes to %s", name, l[1], target)
			}
		}
		for _, target := range targets {
			if strings.Contains(target, "://") {
				continue
			}
			file, anchor, anchored := strings.Cut(target, "#")
			linked := name
			if file != "" {
				linked = filepath.ToSlash(filepath.Join(filepath.Dir(name), file))
			}
			if !exists(linked) {
				t.Errorf("%s: there is no %s", name, target)
			} else if anchored && !anchors(all[linked])[anchor] {
				t.Errorf("%s: %s has no heading for #%s", name, linked, anchor)
			}
		}
	}
}

var (
	table     = regexp.MustCompile(`(?m)(?:^[ \t]*\|.*\n?)+`)
	separator = regexp.MustCompile(`^\s*\|[-:| ]+\|\s*$`)
)

// TestPaths: every path of the repository that a page names exists, but for files that
// programs make.
func TestPaths(t *testing.T) {
	for name, text := range pages(t) {
		if name == "CHANGELOG.md" {
			continue // of the past
		}
		for _, span := range codeSpan.FindAllString(fenced.ReplaceAllString(text, ""), -1) {
			path := strings.Trim(span, "`")
			top, _, isPath := strings.Cut(path, "/")
			if _, err := os.Stat(filepath.Join(root, top)); !isPath || top == "" || top == "." || err != nil || strings.HasPrefix(path, "deploy/secrets") || strings.ContainsAny(path, " =$<…{") {
				continue
			}
			if found, _ := filepath.Glob(filepath.Join(root, path)); found == nil {
				t.Errorf("%s: there is no %s", name, path)
			}
		}
	}
}

// TestTables: every table of every page has a header, and rows of as many cells. A row
// after an empty line begins a table without header.
func TestTables(t *testing.T) {
	for name, text := range pages(t) {
		for _, rows := range table.FindAllString(fenced.ReplaceAllString(text, ""), -1) {
			rows := strings.Split(strings.TrimSpace(rows), "\n")
			if len(rows) < 2 || !separator.MatchString(rows[1]) {
				t.Errorf("%s: this row follows no header: %s", name, rows[0])
				continue
			}
			cells := func(row string) int { return strings.Count(row, "|") - strings.Count(row, `\|`) - 1 }
			for _, row := range rows[1:] {
				if cells(row) != cells(rows[0]) {
					t.Errorf("%s: this row has %d cells, its header %d: %s", name, cells(row), cells(rows[0]), row)
				}
			}
		}
	}
}

// TestIndex: the index links to every page, that of contributors to theirs, and each page
// has an example.
func TestIndex(t *testing.T) {
	all := pages(t)
	for name, text := range all {
		page, ok := strings.CutPrefix(name, "docs/")
		if !ok || page == "README.md" {
			continue
		}
		index := "docs/README.md"
		if strings.HasPrefix(page, "contributing/") {
			index, page = "CONTRIBUTING.md", name
		}
		if !strings.Contains(all[index], "]("+page+")") {
			t.Errorf("%s does not link to %s", index, page)
		}
		if !fenced.MatchString(text) {
			t.Errorf("%s has no example", name)
		}
	}
}

// next are the pages after each page of the two paths through the manual. Each use leads
// from feed to testing.
var next = map[string]string{
	"quickstart": "ttl", "ttl": "feed", "feed": "sessions",
	"sessions": "testing", "reservations": "testing", "trials": "testing", "delayed-jobs": "testing",
	"agents": "testing", "idempotency": "testing", "actions": "testing", "uses": "testing",
	"install": "embedded", "embedded": "operations", "operations": "production",
}

// TestNext: the last line of each page on a path leads to the next one.
func TestNext(t *testing.T) {
	all := pages(t)
	for from, to := range next {
		lines := strings.Split(strings.TrimSpace(all["docs/"+from+".md"]), "\n")
		if last := lines[len(lines)-1]; !strings.HasPrefix(last, "Next: ") || !strings.Contains(last, "]("+to+".md)") {
			t.Errorf("docs/%s.md does not end with a line that begins with Next: and links to %s.md", from, to)
		}
	}
}

// defined are words of docs/glossary.md that no reader brings along.
var defined = regexp.MustCompile(`(?i)\b(?:fold|folded|projection|fenced?|the lease|digest|the gate|log time|judges?|judged)\b`)

// TestGlossary: the glossary has twelve words, and a page that uses one of the rarer ones
// links to it.
func TestGlossary(t *testing.T) {
	all := pages(t)
	if words := strings.Count(all["docs/glossary.md"], "\n- **"); words != 12 {
		t.Errorf("docs/glossary.md has %d words", words)
	}
	for name, text := range all {
		page, ok := strings.CutPrefix(name, "docs/")
		if !ok || generatedPages[page] || strings.HasPrefix(page, "contributing/") || page == "glossary.md" {
			continue
		}
		prose := codeSpan.ReplaceAllString(fenced.ReplaceAllString(benchTable.ReplaceAllString(text, ""), ""), "`")
		if word := defined.FindString(prose); word != "" && !strings.Contains(text, "](glossary.md)") {
			t.Errorf("%s uses %q without a link to docs/glossary.md", name, word)
		}
	}
}

var (
	generatedPages = map[string]bool{"flags.md": true, "metrics.md": true}
	accountToCopy  = regexp.MustCompile("(?s)## The account to copy\n\n```text.*?```") // TestFiles of processor/gate writes it
	word           = regexp.MustCompile(`\S*[\pL\pN]\S*`)
)

// TestManualWords: the manual has at most 30,000 words, without what is generated and
// the pages for contributors.
func TestManualWords(t *testing.T) {
	words := 0
	for name, text := range pages(t) {
		if page, ok := strings.CutPrefix(name, "docs/"); ok && !generatedPages[page] && !strings.HasPrefix(page, "contributing/") {
			words += len(word.FindAllString(accountToCopy.ReplaceAllString(benchTable.ReplaceAllString(text, ""), ""), -1))
		}
	}
	if words > 30_000 {
		t.Errorf("the manual has %d words, at most 30000 are read", words)
	}
}

func exists(path string) bool {
	_, err := os.Stat(filepath.Join(root, path))
	return err == nil
}

var (
	subjects   = regexp.MustCompile(`lapse\.main\.[a-z][A-Za-z0-9_.%*>-]+`)
	headers    = regexp.MustCompile(`\b(?:If-Match|Lapse-[A-Z][A-Za-z-]*[a-z]|Nats-[A-Z][A-Za-z-]*[a-z])\b`)
	events     = regexp.MustCompile(`\b(?:Collection|Document|Mutation)(?:Created|Replaced|Deleted|Expired|Expiring|Touched|Held|Released|Rejected)\b`)
	flags      = regexp.MustCompile("(?m)(?:^|[\\s`(])--([a-z][a-z-]+)")
	metrics    = regexp.MustCompile(`\blapse_[a-z0-9_]*[a-z0-9]`)
	tests      = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)
	errorNames = regexp.MustCompile("(?m)^\\| [45]\\d\\d \\| (`.*?) \\|")
	declared   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w*)\(`)
)

// others are flags of commands other than lapse.
var others = []string{"env-file", "build", "detach", "no-build", "no-deps", "wait", "signal", "arg", "argjson", "export-format", "out", "pattern", "scan", "settings", "table-arn", "uri", "inbox-prefix", "stream", "tlsca", "replicas",
	"pull", "filter", "defaults", "last-for", "max-pending", "deliver", "check", "config-file", "from-file", "ignore-missing", "now", "publish", "purge", "read-only", "set", "strip-components", "volume", "name", "nats-resolver", "private", "sys", "sys-account"}

// clockRequests move the clock of a test: serve has none, and its description neither.
var clockRequests = []string{"lapse.main.test.open", "lapse.main.test.now", "lapse.main.test.advance", "lapse.main.test.drop"}

// TestNames: every subject, header, event, metric, test and flag in the pages exists.
func TestNames(t *testing.T) {
	all := pages(t)
	d := asyncapi.Load()
	known := struct{ headers, metrics, flags, tests map[string]bool }{
		map[string]bool{}, set(metrics.FindAllString(all["docs/metrics.md"], -1)), set(others), testNames(t)}
	for name, s := range d.Components.Schemas {
		if properties, ok := s.(map[string]any)["properties"].(map[string]any); ok && strings.HasSuffix(name, "Headers") {
			maps.Insert(known.headers, maps.All(set(slices.Collect(maps.Keys(properties)))))
		}
	}
	for _, f := range flags.FindAllStringSubmatch(all["docs/flags.md"], -1) {
		known.flags[f[1]] = true
	}
	for name, text := range all {
		text = strings.ReplaceAll(text, "llms.txt", "")
		check := func(kind string, found []string, ok func(string) bool) {
			for _, mention := range found {
				if !ok(mention) {
					t.Errorf("%s: there is no %s %s", name, kind, mention)
				}
			}
		}
		check("subject", subjects.FindAllString(text, -1), func(s string) bool {
			// A prefix, or a subject with an ellipsis, stands for several subjects.
			return strings.HasSuffix(s, ".") || len(conform.Channels(s)) > 0 || slices.Contains(clockRequests, s)
		})
		check("header", headers.FindAllString(text, -1), func(s string) bool {
			return known.headers[s] || s == "Lapse-Console" || s == "Lapse-Signature" || s == "Nats-Pin-Id" || strings.HasPrefix(s, "Nats-Expected-") || strings.HasPrefix(s, "Nats-Schedule")
		}) // Lapse-Console and Lapse-Signature are HTTP headers
		check("event", events.FindAllString(text, -1), func(s string) bool { _, ok := d.Operations["events."+s]; return ok })
		check("metric", metrics.FindAllString(text, -1), func(s string) bool {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				s = strings.TrimSuffix(s, suffix)
			}
			// Consumer names, and the fixture of pytest, look like metric names.
			return known.metrics[s] || s == "lapse_db" || s+"_" == schema.ReaderConsumer || s+"_" == schema.ServerConsumer
		})
		check("test", tests.FindAllString(goBlock.ReplaceAllString(text, ""), -1), func(s string) bool { return known.tests[s] || s == "TestClock" || s == "TestDatabase" }) // of package client and of Python
		var named []string
		for _, f := range flags.FindAllStringSubmatch(text, -1) {
			named = append(named, f[1])
		}
		check("flag", named, func(s string) bool { return known.flags[s] })
	}
}

// TestReference: docs/requests.md names every operation and error.
func TestReference(t *testing.T) {
	page := pages(t)["docs/requests.md"]
	d := asyncapi.Load()
	for operation := range d.Operations {
		kind, _, _ := strings.Cut(operation, ".")
		if kind != "events" && kind != "mutations" && !strings.Contains(page, "`"+operation) {
			t.Errorf("docs/requests.md does not name %s", operation)
		}
	}
	text, err := json.Marshal(d.Components.Schemas["ErrorName"])
	if err != nil {
		t.Fatal(err)
	}
	var page2 []string
	for _, row := range errorNames.FindAllStringSubmatch(page, -1) {
		page2 = append(page2, strings.Split(strings.Trim(row[1], "`"), "`, `")...)
	}
	named := regexp.MustCompile(`"([a-z]+_[a-z_]+|overloaded|unavailable|timeout|internal)"`)
	var described []string
	for _, name := range named.FindAllStringSubmatch(string(text), -1) {
		described = append(described, name[1])
	}
	slices.Sort(page2)
	slices.Sort(described)
	if !slices.Equal(page2, described) {
		t.Errorf("docs/requests.md names the errors\n%v and asyncapi.yaml\n%v", page2, described)
	}
}

// firstCell matches quoted messages of lapse in the first cell of a row. differs matches
// their variable parts: an ellipsis, N and M.
var (
	firstCell = regexp.MustCompile("(?m)^\\| (`.*?`) \\|")
	differs   = regexp.MustCompile(`…|\b[NM]\b`)
)

// TestEventTypes: the manual and the client name each event type that readers see.
func TestEventTypes(t *testing.T) {
	for path, before := range map[string]string{"docs/feed.md": "`", "client/events.go": "= schema."} {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range schema.EventNames() {
			if !regexp.MustCompile(before + name + `\b`).Match(text) {
				t.Errorf("%s does not name %s", path, name)
			}
		}
	}
}

// TestMessages: the code contains every message that docs/troubleshooting.md quotes.
func TestMessages(t *testing.T) {
	_, section, _ := strings.Cut(pages(t)["docs/troubleshooting.md"], "## Messages of `serve`\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var code strings.Builder
	for name, text := range sources(t) {
		if !strings.HasSuffix(name, "_test.go") {
			code.WriteString(text)
		}
	}
	for _, cell := range firstCell.FindAllStringSubmatch(section, -1) {
		for _, quoted := range codeSpan.FindAllString(cell[1], -1) {
			for _, fragment := range differs.Split(strings.Trim(quoted, "`"), -1) {
				if fragment = strings.TrimSpace(fragment); len(fragment) < 8 {
					continue
				}
				if !strings.Contains(code.String(), fragment) {
					t.Errorf("docs/troubleshooting.md quotes %s, and nothing says %q", quoted, fragment)
				}
			}
		}
	}
}

// TestREADME: README.md has at most 1050 words.
func TestREADME(t *testing.T) {
	if n := len(strings.Fields(pages(t)["README.md"])); n > 1050 {
		t.Errorf("README.md has %d words, at most 1050 are read", n)
	}
}

var (
	benchTable = regexp.MustCompile(`(?s)<!-- bench -->.*<!-- /bench -->`)
	figure     = regexp.MustCompile(`\b([0-9][0-9,.]*[0-9]|[0-9])(?:/s| (?:ms|s|MB|bytes)\b)?`)
	clauseEnd  = regexp.MustCompile(`\n|\||; |\. `)
)

// TestFigures: docs/benchmarks.md has the figures of every clause that links to it. In
// README.md and docs/compare.md it has all that are measured, or are milliseconds.
func TestFigures(t *testing.T) {
	all := pages(t)
	known := map[string]bool{}
	for _, f := range figure.FindAllStringSubmatch(benchTable.FindString(all["docs/benchmarks.md"]), -1) {
		known[f[0]], known[f[1]] = true, true
	}
	_, measured, _ := strings.Cut(all["README.md"], "## Measured\n")
	measured, _, _ = strings.Cut(measured, "\n## ")
	for name, text := range all {
		if name == "docs/benchmarks.md" {
			continue
		}
		for _, clause := range clauseEnd.Split(text, -1) {
			quotes := strings.Contains(clause, "benchmarks.md")
			if name == "README.md" || name == "docs/compare.md" {
				quotes = quotes || strings.Contains(clause, "measured") || strings.Contains(clause, " ms") || strings.Contains(measured, clause)
			}
			if !quotes {
				continue
			}
			for _, f := range figure.FindAllString(clause, -1) {
				if !known[f] {
					t.Errorf("%s says %s, the table of docs/benchmarks.md does not: %s", name, f, clause)
				}
			}
		}
	}
}

func set(names []string) map[string]bool {
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// testNames returns the names of the tests, fuzz targets and benchmarks of all modules.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for name, text := range sources(t) {
		if strings.HasSuffix(name, "_test.go") {
			for _, d := range declared.FindAllStringSubmatch(text, -1) {
				all[d[1]] = true
			}
		}
	}
	return all
}

// sources returns the text of every Go file, by its path.
func sources(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// generated compares a generated page with the wanted text, or writes it with -update.
func generated(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(name)
	if err != nil || string(got) != want {
		t.Errorf("docs/%s is not up to date (%v): run make docs", name, err)
	}
}
