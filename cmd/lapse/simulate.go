package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/schema"
)

func newSimulateCommand(a *app) *cobra.Command {
	var until string
	cmd := &cobra.Command{
		Use:   "simulate [FILE|-]",
		Short: "Run mutations from a file under a simulated clock and print the log",
		Long: `simulate reads mutations, one JSON object a line with times that never go back,

  {"at":"2015-05-17T10:05:03Z","op":"document.upsert","collection":"sessions","id":"a","body":{"ttl":30}}

decides, folds and expires them as serve does, with a clock that jumps, and prints
every event of the log that results. The same input gives the same bytes.`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			limit := time.Time{}
			if until != "" {
				t, err := time.Parse(time.RFC3339Nano, until)
				if err != nil {
					return usageErrorf("--until %s: give a time like 2015-05-17T10:05:03Z", until)
				}
				limit = t
			}
			return a.simulate(args, limit)
		},
	}
	cmd.Flags().StringVar(&until, "until", "", "stop the clock at `TIME` instead of running on until nothing is pending")
	return cmd
}

func (a *app) simulate(args []string, until time.Time) (err error) {
	collectLess()
	in, size := a.stdin, int64(-1)
	if len(args) == 1 && args[0] != "-" {
		file, err := os.Open(args[0])
		if err != nil {
			return fmt.Errorf("%w: give a FILE that is there, or - for standard input", err)
		}
		defer file.Close()
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
		in = file
	}
	out := bufio.NewWriterSize(a.stdout, 1<<16)
	defer func() { err = errors.Join(err, out.Flush()) }()
	var line []byte
	simulation, err := processor.NewSimulation(func(e *schema.Event) error {
		line = append(e.AppendJSON(line[:0]), '\n')
		_, err := out.Write(line)
		return err
	})
	if err != nil {
		return err
	}
	bar := newProgress(a.stderr, "simulate", size)
	defer bar.Done()
	if err := simulateLines(simulation, in, until, bar); err != nil {
		// What happened before the faulty line is printed all the same.
		return errors.Join(err, simulation.Flush())
	}
	if until.IsZero() {
		return simulation.Finish()
	}
	if err := simulation.Advance(until.UnixMilli()); err != nil {
		return err
	}
	return simulation.Flush()
}

func simulateLines(simulation *processor.Simulation, in io.Reader, until time.Time, bar *progress) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 1<<16), schema.MaxLineBytes)
	for n := 1; lines.Scan(); n++ {
		bar.Add(int64(len(lines.Bytes())) + 1)
		if len(lines.Bytes()) == 0 {
			continue
		}
		// The mutation is kept until it is folded, the scanner's buffer is not.
		at, mutation, err := schema.ParseMutationLine(bytes.Clone(lines.Bytes()))
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if !until.IsZero() && at.After(until) {
			return nil
		}
		mutation.Recorded = true
		if _, err := simulation.Mutate(at.UnixMilli(), mutation); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line is longer than %d bytes: a document has at most %d", schema.MaxLineBytes, schema.MaxDocumentBytes)
	}
	return lines.Err()
}
