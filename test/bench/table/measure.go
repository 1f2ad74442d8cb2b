package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/lapsedb/lapse/test/versus"
)

// suite is a package with benchmarks that have rows.
type suite struct {
	dir, pkg string // working directory of go test, and its package argument
}

var suites = []suite{
	{dir: ".", pkg: "."},
	{dir: "../..", pkg: "./processor"},
}

// Time limits for the benchmarks of a package.
const (
	fullTimeout  = 6 * time.Hour
	quickTimeout = 10 * time.Minute
)

// measure runs benchmarks and returns the rows of those that succeeded, even if others
// failed.
func (o options) measure(run string) (rows []row, failed error) {
	for _, s := range suites {
		more, err := s.measure(run, o.quick)
		rows = append(rows, more...)
		failed = errors.Join(failed, err)
	}
	if len(rows) == 0 && failed == nil {
		failed = fmt.Errorf("no benchmark that matches %s has given a row", run)
	}
	return rows, failed
}

// measureAgain runs the benchmark of a row by itself.
func (r row) measureAgain(quick bool) ([]row, error) {
	for _, s := range suites {
		if s.pkg == r.Package {
			return s.measure(exactly(r.Benchmark), quick)
		}
	}
	return nil, fmt.Errorf("no package %s", r.Package)
}

// exactly returns the regexp for -bench that matches one benchmark.
func exactly(benchmark string) string {
	elements := strings.Split(benchmark, "/")
	for i, e := range elements {
		elements[i] = "^" + regexp.QuoteMeta(e) + "$"
	}
	return strings.Join(elements, "/")
}

// measure runs the benchmarks of the package and passes on their output.
func (s suite) measure(run string, quick bool) ([]row, error) {
	temp, err := os.MkdirTemp("", "lapse-table")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	name := filepath.Join(temp, "rows")
	limit := fullTimeout
	if quick {
		limit = quickTimeout
	}
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", run, "-benchtime", "1x", "-timeout", limit.String(), s.pkg)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), versus.TableEnv+"="+name)
	if quick {
		cmd.Env = append(cmd.Env, versus.QuickEnv+"=1")
	}
	failed := cmd.Run()
	if failed != nil {
		failed = fmt.Errorf("FAILED: the benchmarks of %s: %w", s.pkg, failed)
	}
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	rows, err := parseRows(text, s.pkg, time.Now().Format(time.DateOnly))
	return rows, errors.Join(failed, err)
}

// parseRows parses the rows that benchmarks reported.
func parseRows(text []byte, pkg, date string) (rows []row, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		r := row{Package: pkg, Date: date}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%w: %s", err, lines.Bytes())
		}
		for _, figure := range []*float64{&r.Lapse, &r.Other, &r.Ratio, &r.LapseCPU, &r.OtherCPU} {
			*figure = round(*figure, 4)
		}
		rows = append(rows, r)
	}
	return rows, lines.Err()
}
