package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strings"

	"github.com/lapsedb/lapse/test/versus"
)

// row is a versus.Row and its origin.
type row struct {
	versus.Row
	Package string // of the benchmark, as an argument of go test
	Date    string
}

// same reports whether two rows have the same work and peer.
func (r row) same(other row) bool { return r.Work == other.Work && r.Peer == other.Peer }

// sameBenchmark reports whether one benchmark gives both rows.
func (r row) sameBenchmark(other row) bool {
	return r.Package == other.Package && r.Benchmark == other.Benchmark
}

func (r row) String() string {
	if r.Peer == "" {
		return r.Work
	}
	return r.Work + ", beside " + r.Peer
}

// table is the result of one kind of run.
type table struct {
	Machine machine
	Rows    []row
}

// tables is the content of table.json. Quick benchmarks have smaller sizes, so their
// figures differ.
type tables struct{ Full, Quick table }

func (t *tables) of(quick bool) *table {
	if quick {
		return &t.Quick
	}
	return &t.Full
}

func readTables(name string) (*tables, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	t := new(tables)
	return t, json.Unmarshal(text, t)
}

func (t *tables) write(name string) error {
	text, err := t.encode()
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o666)
}

// encode writes a line for each row, so that a diff shows what changed.
func (t *tables) encode() ([]byte, error) {
	var text bytes.Buffer
	var failed error
	encode := func(v any) {
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			failed = err
		}
		text.Truncate(len(bytes.TrimRight(text.Bytes(), "\n")))
	}
	for i, kind := range []string{"Full", "Quick"} {
		of := t.of(kind == "Quick")
		text.WriteString([]string{"{", ",\n"}[i] + `"` + kind + `": {"Machine": `)
		encode(of.Machine)
		text.WriteString(`, "Rows": [`)
		for i, r := range of.Rows {
			text.WriteString([]string{"\n", ",\n"}[min(i, 1)])
			encode(r)
		}
		text.WriteString("\n]}")
	}
	text.WriteString("}\n")
	return text.Bytes(), failed
}

// order is the order of the table, by names of benchmarks without their common prefix.
// Others come last, in the order in which they ran.
var order = []string{
	"Get", "BatchGet", "Upsert", "Touch", "Cluster", "Mutations",
	"Storm", "Lateness", "GetBeside", "DefaultTTL", "WarnBefore",
	"Append", "CatchUp", "Restart", "Memory", "MillionPending", "Disk", "Simulate", "WheelAgainstHeap",
	"Query", "QueryIngest", "QueryBeside",
}

func (r row) rank() int {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.Benchmark, "Benchmark"), "/")
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

// merge returns the rows to keep and the rows to drop. If all were measured, it drops the
// rows that are missing now; else those whose benchmark gave other rows.
func merge(was, now []row, whole bool) (merged, gone []row) {
	for _, r := range was {
		switch i := slices.IndexFunc(now, r.same); {
		case i >= 0:
			merged = append(merged, now[i])
		case whole || slices.ContainsFunc(now, r.sameBenchmark):
			gone = append(gone, r)
		default:
			merged = append(merged, r)
		}
	}
	for _, r := range now {
		if !slices.ContainsFunc(merged, r.same) {
			merged = append(merged, r)
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
	return merged, gone
}
