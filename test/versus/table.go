package versus

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// Row is a line of the table of `make bench`: how lapse and a peer do the same work.
type Row struct {
	Work  string  // the work; Work and Peer are the key of the row
	Peer  string  `json:",omitempty"` // "" without a peer
	Unit  string  `json:",omitempty"` // of Lapse and Other, printed after the number: "/s", " ms"
	Lapse float64 // median
	Other float64 `json:",omitempty"` // the peer's
	Ratio float64 `json:",omitempty"` // Lapse to Other: median over the rounds
	// Microseconds of processor time for each operation, of the callers and the
	// process that serves them; 0 where it is not measured.
	LapseCPU float64 `json:",omitempty"`
	OtherCPU float64 `json:",omitempty"`
	Goal     Goal    `json:",omitzero"`

	Benchmark string // name of the benchmark, from testing; Report sets it
}

// Goal is the target of a row, for Ratio or, without a peer, for Lapse. The zero value is
// no target.
type Goal struct {
	Least float64 `json:",omitempty"`
	Most  float64 `json:",omitempty"`
}

// AtLeast returns a goal for a value that should be large.
func AtLeast(value float64) Goal { return Goal{Least: value} }

// AtMost returns a goal for a value that should be small.
func AtMost(value float64) Goal { return Goal{Most: value} }

// TableEnv names the file to which Report appends rows, as lines of JSON.
const TableEnv = "BENCH_TABLE"

// Report adds a row to the table, if one is being made.
func Report(b *testing.B, r Row) {
	b.Helper()
	name := os.Getenv(TableEnv)
	if name == "" {
		return
	}
	r.Benchmark = b.Name()
	line, err := json.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	_, err = file.Write(append(line, '\n'))
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		b.Fatal(err)
	}
}

// metric returns name in a form that testing accepts.
func metric(name string) string { return strings.Join(strings.Fields(name), "-") }
