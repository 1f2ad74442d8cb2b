package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/lapsedb/lapse/test/versus"
)

// row is a versus.Row and its origin.
type row struct {
	versus.Row
	Package string // of the benchmark, as an argument of go test
	Date    string
}

// rows is the result of one kind of run, and the hardware and versions it ran with.
type rows struct {
	Machine string
	Rows    []row
}

// tables is the content of table.json. Quick benchmarks have smaller sizes, so their
// figures differ.
type tables struct{ Full, Quick rows }

func read(name string) (t tables, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return t, err
	}
	return t, json.Unmarshal(text, &t)
}

// write writes a line for each row, so that a diff shows what changed.
func (t tables) write(name string) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(t); err != nil {
		return err
	}
	return os.WriteFile(name, bytes.ReplaceAll(text.Bytes(), []byte(`{"Work":`), []byte("\n"+`{"Work":`)), 0o666)
}

func thisMachine() (string, error) {
	versions, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}",
		"github.com/nats-io/nats-server/v2", "github.com/cockroachdb/pebble/v2").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w", err)
	}
	var nats, pebble string
	_, _ = fmt.Sscanf(string(versions), "v%s\nv%s", &nats, &pebble)
	text := fmt.Sprintf("%d cores", runtime.NumCPU())
	cpus, _ := os.ReadFile("/proc/cpuinfo") // optional
	if m := regexp.MustCompile(`(?m)^model name\s*: (.*\S)`).FindSubmatch(cpus); m != nil {
		text += fmt.Sprintf(" (%s)", m[1])
	}
	text += fmt.Sprintf(", Go %s, nats-server %s, Pebble %s", strings.TrimPrefix(runtime.Version(), "go"), nats, pebble)
	redis, _ := exec.Command("redis-server", "--version").Output() // optional, too
	if m := regexp.MustCompile(` v=(\S+)`).FindSubmatch(redis); m != nil {
		text += fmt.Sprintf(", Redis %s", m[1])
	}
	return text, nil
}

// order is the order of the table, by names of benchmarks without their common prefix.
// Others come last, in the order in which they ran.
var order = []string{
	"Get", "BatchGet", "Upsert", "Touch", "Cluster", "Mutations",
	"Storm", "Lateness", "GetBeside", "DefaultTTL", "WarnBefore",
	"Append", "CatchUp", "Restart", "Memory", "MillionPending", "Disk", "Simulate", "WheelAgainstHeap",
	"Query",
}

func (r row) rank() int {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.Benchmark, "Benchmark"), "/")
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

// same reports whether two rows have the same work and peer.
func (r row) same(other row) bool { return r.Work == other.Work && r.Peer == other.Peer }

func (r row) String() string {
	if r.Peer == "" {
		return r.Work
	}
	return r.Work + ", beside " + r.Peer
}

// merge returns the rows to store, and the stored rows that are gone: if all were
// measured, those that are missing now, else those whose benchmark gave other rows.
func merge(was, now []row, whole bool) (merged, gone, added []row) {
	for _, r := range was {
		switch i := slices.IndexFunc(now, r.same); {
		case i >= 0:
			merged = append(merged, now[i])
		case whole || slices.ContainsFunc(now, func(n row) bool { return n.Package == r.Package && n.Benchmark == r.Benchmark }):
			gone = append(gone, r)
		default:
			merged = append(merged, r)
		}
	}
	for _, r := range now {
		if !slices.ContainsFunc(merged, r.same) {
			merged, added = append(merged, r), append(added, r)
		}
	}
	// Rows of the same work are adjacent.
	first := make(map[string]int)
	for i, r := range slices.Backward(merged) {
		first[r.Work] = i
	}
	slices.SortStableFunc(merged, func(a, b row) int {
		return cmp.Or(a.rank()-b.rank(), first[a.Work]-first[b.Work])
	})
	return merged, gone, added
}

// value returns the value that goals and comparisons use.
func (r row) value() float64 {
	if r.Peer != "" {
		return r.Ratio
	}
	return r.Lapse
}

// figure formats value.
func (r row) figure() string {
	if r.Peer != "" {
		return r.ratio()
	}
	return number(r.Lapse) + r.Unit
}

// reached reports whether a value meets the row's goal.
func (r row) reached(value float64) bool {
	return (r.Goal.Least == 0 || value >= r.Goal.Least) && (r.Goal.Most == 0 || value <= r.Goal.Most)
}

// worse reports whether the value is worse than before by more than a third. Of rows
// without a peer it compares counts and sizes that miss their goal: times and rates depend
// on the machine and its present state.
func (r row) worse(was row) bool {
	if r.Peer == "" && (strings.HasSuffix(r.Unit, "/s") || slices.Contains([]string{" s", " ms", " µs", " ns"}, r.Unit) || r.reached(r.value())) {
		return false
	}
	// Without a goal, small is good for all units but rates.
	if r.Goal.Most != 0 || r.Goal.Least == 0 && !strings.HasSuffix(r.Unit, "/s") {
		return r.value() > was.value()*4/3
	}
	return r.value() < was.value()*2/3
}

// Marks around the table in docs/benchmarks.md.
const beginMark, endMark = "<!-- bench -->\n", "<!-- /bench -->"

// into returns the page with the table between the marks.
func (t rows) into(page string) string {
	before, rest, _ := strings.Cut(page, beginMark)
	_, after, _ := strings.Cut(rest, endMark)
	return before + beginMark + t.markdown() + endMark + after
}

// missed marks a goal that is not reached.
const missed = "✗"

// markdown formats the table and a line above it. Cells for work and lapse that repeat
// the row above stay empty.
func (t rows) markdown() string {
	var from, to string
	var above row
	page := table.NewWriter()
	page.AppendHeader(table.Row{"work", "lapse", "peer", "ratio", "goal"})
	for _, r := range t.Rows {
		from, to = min(cmp.Or(from, r.Date), r.Date), max(to, r.Date)
		work, lapse, peer, ratio := r.Work, number(r.Lapse)+r.Unit, "", ""
		if above.Work == r.Work {
			work = ""
			if above.Lapse == r.Lapse && above.Unit == r.Unit {
				lapse = ""
			}
		}
		goal := ""
		if r.Peer == "" {
			goal = r.Unit
		} else if peer, ratio = number(r.Other)+r.Unit+", "+r.Peer, r.ratio(); r.Other == 0 && r.Lapse == 0 {
			lapse, peer = "", r.Peer // the row has only a ratio
		}
		switch {
		case r.Goal.Least != 0:
			goal = "≥ " + number(r.Goal.Least) + goal
		case r.Goal.Most != 0:
			goal = "≤ " + number(r.Goal.Most) + goal
		default:
			goal = ""
		}
		if !r.reached(r.value()) {
			goal += " " + missed
		}
		page.AppendRow(table.Row{work, lapse, peer, ratio, goal})
		above = r
	}
	if from != to {
		from += " to " + to
	}
	return fmt.Sprintf("%s. %s. %s: the goal is missed.\n\n%s\n", from, t.Machine, missed, page.RenderMarkdown())
}

// number formats three significant digits, as in 121,000 or 0.12.
func number(v float64) string { return humanize.Commaf(round(v, 3)) }

// ratio formats the ratio with fewer decimals the greater it is, and with more digits if
// the rounded one is on the other side of the goal.
func (r row) ratio() string {
	decimals := 0
	switch {
	case r.Ratio < 0.1:
		decimals = 3
	case r.Ratio < 2:
		decimals = 2
	case r.Ratio < 10:
		decimals = 1
	}
	text := strconv.FormatFloat(r.Ratio, 'f', decimals, 64)
	for digits := 3; r.reached(r.Ratio) != r.reached(parse(text)) && digits < 6; digits++ {
		text = strconv.FormatFloat(r.Ratio, 'g', digits, 64)
	}
	return text
}

// round keeps this number of significant digits.
func round(v float64, digits int) float64 { return parse(strconv.FormatFloat(v, 'e', digits-1, 64)) }

func parse(text string) float64 {
	v, _ := strconv.ParseFloat(text, 64) // text was formatted here
	return v
}
