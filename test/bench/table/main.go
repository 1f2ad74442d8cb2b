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
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
)

// Paths relative to test/bench.
const (
	tablesFile = "table/table.json"
	pageFile   = "../../docs/benchmarks.md"
)

func main() {
	var o options
	flag.BoolVar(&o.quick, "quick", false, "short benchmarks, which have figures of their own; compares, unless there is -write")
	flag.StringVar(&o.run, "run", ".", "only benchmarks that match this `regexp`, as for go test -bench; the others keep their rows")
	check := flag.Bool("check", false, "compare with what was kept, and keep nothing")
	write := flag.Bool("write", false, "keep the figures, also with -quick")
	flag.Parse()
	if flag.NArg() > 0 || *check && *write {
		fmt.Fprintln(os.Stderr, "table: no arguments are taken, and -check or -write, not both")
		os.Exit(2)
	}
	o.check = *check || o.quick && !*write
	began := time.Now()
	err := o.do()
	fmt.Printf("table: took %s\n", time.Since(began).Round(time.Second))
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

type options struct {
	quick, check bool
	run          string
}

func (o options) do() error {
	kept, err := readTables(tablesFile)
	if err != nil {
		return fmt.Errorf("%w; run it in test/bench", err)
	}
	was := kept.of(o.quick)
	if o.check && len(was.Rows) == 0 {
		return errors.New("table.json has nothing to compare with, see -write")
	}
	here, err := thisMachine()
	if err != nil {
		return err
	}
	if len(was.Rows) > 0 && was.Machine != here {
		fmt.Printf("table: what was kept is of another machine or other versions:\n  %s\n  %s\n", was.Machine, here)
	}
	rows, failed := o.measure(o.run)
	if o.check {
		return errors.Join(failed, o.compare(was.Rows, rows))
	}
	whole := o.run == "." && failed == nil
	merged, gone := merge(was.Rows, rows, whole)
	for _, r := range gone {
		fmt.Printf("table: gone: %s\n", r)
	}
	*was = table{here, merged}
	if err := kept.write(tablesFile); err != nil {
		return errors.Join(failed, err)
	}
	if !o.quick {
		err = writeTable(pageFile, *was)
	}
	return errors.Join(failed, err)
}

// compare prints new and missing rows, and returns an error if any is worse. A benchmark
// with rows that seem worse is measured once more by itself.
func (o options) compare(was, rows []row) error {
	found := compare(was, rows, o.run == ".")
	for _, r := range found.fresh {
		fmt.Printf("table: new, not compared: %s\n", r)
	}
	for _, r := range found.missing {
		fmt.Printf("table: missing: %s\n", r)
	}
	var again []row
	for _, name := range found.benchmarks() {
		fmt.Printf("table: measured again, as something seems worse: %s\n", name.Benchmark)
		more, err := name.measureAgain(o.quick)
		if err != nil {
			return err
		}
		again = append(again, more...)
	}
	var worse []error
	for _, c := range found.worse {
		i := slices.IndexFunc(again, c.now.same)
		if i < 0 {
			worse = append(worse, fmt.Errorf("WORSE: %s, and not there when measured again", c))
			continue
		}
		second := change{c.was, again[i]}
		if second.worse() {
			worse = append(worse, fmt.Errorf("WORSE: %s; when measured again %s", c, second.now.figure()))
			continue
		}
		fmt.Printf("table: noise: %s; when measured again %s\n", c, second.now.figure())
	}
	if len(worse) == 0 {
		fmt.Printf("table: of %d rows compared none is worse by more than a third\n", found.compared)
	}
	return errors.Join(worse...)
}
