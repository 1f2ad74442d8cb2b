package versus

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// Row is a line of the table that `make bench` makes: how lapse does some work,
// and a peer the same.
type Row struct {
	Work  string  // what is done; with Peer it names the row
	Peer  string  `json:",omitempty"` // "" if there is none to compare with
	Unit  string  `json:",omitempty"` // of Lapse and Other, behind the number: "/s", " ms"
	Lapse float64 // median
	Other float64 `json:",omitempty"` // the peer's
	Ratio float64 `json:",omitempty"` // of Lapse to Other, by the median of rounds
	// Microseconds of processor time for each operation, of the callers and the
	// process that serves them; 0 where it is not measured.
	LapseCPU float64 `json:",omitempty"`
	OtherCPU float64 `json:",omitempty"`
	Goal     Goal    `json:",omitzero"`

	Benchmark string // that gives the row, as testing names it; Report fills it in
}

// Goal is what a row is to reach, by Ratio or, without a peer, by Lapse. The
// zero value is none.
type Goal struct {
	Least float64 `json:",omitempty"`
	Most  float64 `json:",omitempty"`
}

// AtLeast is the goal of what should be large.
func AtLeast(value float64) Goal { return Goal{Least: value} }

// AtMost is the goal of what should be small.
func AtMost(value float64) Goal { return Goal{Most: value} }

// TableEnv names the file to which rows are appended, one as JSON a line.
const TableEnv = "LAPSE_BENCH_TABLE"

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

// metric makes a name that testing takes.
func metric(name string) string { return strings.Join(strings.Fields(name), "-") }
