// Command table runs the benchmarks that report rows, stores the rows in table.json and
// shows them in docs/benchmarks.md; or it compares them with the stored ones. From the
// root of the repository:
//
//	go -C test/bench run ./table                 # make bench
//	go -C test/bench run ./table -run 'Upsert/os'
//	go -C test/bench run ./table -quick          # make bench-quick
//	go -C test/bench run ./table -quick -write
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lapsedb/lapse/test/versus"
)

// inModule is the package of the benchmarks in this module; others are in that of lapse.
const inModule = "."

// Paths relative to test/bench.
const (
	root       = "../.."
	tablesFile = "table/table.json"
	pageFile   = root + "/docs/benchmarks.md"
)

func main() {
	quick := flag.Bool("quick", false, "short benchmarks, which have figures of their own; compares, unless there is -write")
	run := flag.String("run", ".", "only benchmarks that match this `regexp`, as for go test -bench; the others keep their rows")
	check := flag.Bool("check", false, "compare with the stored rows, and store nothing")
	write := flag.Bool("write", false, "store the rows, also with -quick")
	flag.Parse()
	if flag.NArg() > 0 || *check && *write {
		fmt.Fprintln(os.Stderr, "table: no arguments are allowed, and -check or -write, not both")
		os.Exit(2)
	}
	began := time.Now()
	err := bench(*quick, *check || *quick && !*write, *run)
	fmt.Printf("table: took %s\n", time.Since(began).Round(time.Second))
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func bench(quick, check bool, run string) error {
	all, err := read(tablesFile)
	if err != nil {
		return fmt.Errorf("%w; run it in test/bench", err)
	}
	kept := &all.Full
	if quick {
		kept = &all.Quick
	}
	if check && len(kept.Rows) == 0 {
		return errors.New("table.json has nothing to compare with, see -write")
	}
	here, err := thisMachine()
	if err != nil {
		return err
	}
	if len(kept.Rows) > 0 && kept.Machine != here {
		fmt.Printf("table: the stored rows are of another machine or other versions:\n  %s\n  %s\n", kept.Machine, here)
	}
	var rows []row
	var failed error
	for _, pkg := range []string{inModule, "./processor/machine"} { // the packages whose benchmarks have rows
		more, err := measure(pkg, run, quick)
		rows, failed = append(rows, more...), errors.Join(failed, err)
	}
	if len(rows) == 0 {
		return errors.Join(failed, fmt.Errorf("no benchmark that matches %s has given a row", run))
	}
	merged, gone, added := merge(kept.Rows, rows, run == "." && failed == nil)
	for _, r := range gone {
		fmt.Printf("table: gone: %s\n", r)
	}
	for _, r := range added {
		fmt.Printf("table: new: %s\n", r)
	}
	if check {
		return errors.Join(failed, compare(kept.Rows, rows, quick))
	}
	kept.Machine, kept.Rows = here, merged
	if err := all.write(tablesFile); err != nil || quick {
		return errors.Join(failed, err)
	}
	page, err := os.ReadFile(pageFile)
	if err == nil {
		err = os.WriteFile(pageFile, []byte(all.Full.into(string(page))), 0o666)
	}
	return errors.Join(failed, err)
}

// compare returns an error for each row that is worse than the stored one. A benchmark
// with rows that seem worse is measured once more by itself.
func compare(was, now []row, quick bool) error {
	var worse []error
	again := map[string][]row{} // by benchmark
	for _, r := range now {
		i := slices.IndexFunc(was, r.same)
		if i < 0 || !r.worse(was[i]) {
			continue
		}
		key := r.Package + " " + r.Benchmark
		if _, done := again[key]; !done {
			fmt.Printf("table: measured again, as something seems worse: %s\n", r.Benchmark)
			// Each element of the name as a regexp that matches nothing else.
			name := "^" + strings.ReplaceAll(regexp.QuoteMeta(r.Benchmark), "/", "$/^") + "$"
			var err error
			if again[key], err = measure(r.Package, name, quick); err != nil {
				return err
			}
		}
		change := fmt.Sprintf("%s: %s, was %s", r, r.figure(), was[i].figure())
		switch j := slices.IndexFunc(again[key], r.same); {
		case j < 0:
			worse = append(worse, fmt.Errorf("WORSE: %s, and missing when measured again", change))
		case again[key][j].worse(was[i]):
			worse = append(worse, fmt.Errorf("WORSE: %s; when measured again %s", change, again[key][j].figure()))
		default:
			fmt.Printf("table: noise: %s; when measured again %s\n", change, again[key][j].figure())
		}
	}
	if len(worse) == 0 {
		fmt.Println("table: no row is worse by more than a third")
	}
	return errors.Join(worse...)
}

// measure runs benchmarks of a package, passes on their output, and returns the rows of
// those that succeeded, even if others failed.
func measure(pkg, run string, quick bool) ([]row, error) {
	temp, err := os.MkdirTemp("", "lapse-table")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	name, limit := filepath.Join(temp, "rows"), "6h"
	env := append(os.Environ(), versus.TableEnv+"="+name)
	if quick {
		limit, env = "10m", append(env, versus.QuickEnv+"=1")
	}
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", run, "-benchtime", "1x", "-timeout", limit, pkg)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, os.Stdout, os.Stderr
	if pkg != inModule {
		cmd.Dir = root
	}
	var failed error
	if err := cmd.Run(); err != nil {
		failed = fmt.Errorf("FAILED: the benchmarks of %s: %w", pkg, err)
	}
	file, err := os.Open(name)
	if os.IsNotExist(err) {
		return nil, failed
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	var rows []row
	for lines := json.NewDecoder(bufio.NewReader(file)); lines.More(); {
		r := row{Package: pkg, Date: time.Now().Format(time.DateOnly)}
		if err := lines.Decode(&r); err != nil {
			return rows, errors.Join(failed, err)
		}
		for _, figure := range []*float64{&r.Lapse, &r.Other, &r.Ratio, &r.LapseCPU, &r.OtherCPU} {
			*figure = round(*figure, 4)
		}
		rows = append(rows, r)
	}
	return rows, failed
}
