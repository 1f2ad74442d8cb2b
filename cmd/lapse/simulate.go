package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/schema"
)

// newSimulateCommand is the contract's simulate: mutations in, the log out, with no clock
// but the times of the input.
func newSimulateCommand(a *app) *cobra.Command {
	var until string
	cmd := &cobra.Command{
		Use:   "simulate [FILE|-]",
		Short: "Apply mutations under a simulated clock and print the log",
		Long: `simulate reads mutations, one JSON object per line with times that never go back,

  {"at":"2015-05-17T10:05:03Z","op":"document.upsert",
   "collection":"sessions","id":"a","body":{"ttl":30}}        (wrapped here)

applies them as serve does, with a clock that jumps, and prints every event of the
resulting log. The same input gives the same bytes. The clock stops at the end of the
year 9999: documents that expire later stay.`,
		Example: `  lapse simulate mutations.jsonl > log.jsonl
  lapse simulate mutations.jsonl --until 2015-05-18T00:00:00Z | lapse replay -`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var limit *time.Time
			if until != "" {
				t, err := schema.ParseTime(until)
				if err != nil || t.UnixMilli() > schema.MaxTime {
					return usageErrorf("--until %s: give a time like 2015-05-17T10:05:03Z, in the year 9999 at the latest", until)
				}
				limit = &t
			}
			return a.simulate(cmd.Context(), append(args, "-")[0], limit)
		},
	}
	cmd.Flags().StringVar(&until, "until", "", "stop the clock at `TIME` (default when nothing is left to expire)")
	return cmd
}

// simulate runs a file. The events before a faulty line are printed, and the error names
// the line.
func (a *app) simulate(ctx context.Context, name string, until *time.Time) error {
	in, size, err := a.openInput(name)
	if err != nil {
		return err
	}
	defer in.Close()
	restores := true
	if file, ok := in.(*os.File); ok && size >= 0 {
		// Without a restore, memory and disk do not grow with the log.
		if restores, err = mentions(file, "restore"); err != nil {
			return err
		}
	}
	out := newEventWriter(a.stdout)
	simulation, closeHistory, err := newSimulation(out.Event, restores)
	if err != nil {
		return errors.Join(err, out.Close())
	}
	defer closeHistory()
	bar := newProgress(a.stderr, "simulate", size)
	defer bar.Done()
	err = simulate(ctx, simulation, in, until, bar)
	// A failed write takes precedence: no line is at fault.
	if failed := out.Close(); failed != nil {
		return failed
	}
	return err
}

// newSimulation returns a simulation, with the history that restores need if there may be
// any. The caller calls closeHistory, which removes its file.
func newSimulation(emit func(*schema.Event) error, restores bool) (s *machine.Simulation, closeHistory func(), err error) {
	if !restores {
		s, err = machine.NewSimulation(emit)
		return s, func() {}, err
	}
	history, err := newSpool(emit)
	if err != nil {
		return nil, nil, err
	}
	if s, err = machine.NewSimulation(history.add); err != nil {
		return nil, nil, errors.Join(err, history.close())
	}
	s.Machine.History = machine.AtHand{Log: history}
	return s, func() { _ = history.close() }, nil
}

// simulate runs the mutations of a file, until nothing can expire if until is nil.
// Reading, deciding and writing overlap: ReadMutations reads ahead, and emit is an
// eventWriter. All that is due at a time happens before the next mutation at or after it.
func simulate(ctx context.Context, simulation *machine.Simulation, in io.Reader, until *time.Time, bar *progress) error {
	for line, err := range schema.ReadMutations(ctx, in) {
		if err == nil && until != nil && line.At.After(*until) {
			break
		}
		if err == nil {
			if _, err = simulation.Mutate(line.At.UnixMilli(), line.Mutation); err != nil {
				err = fmt.Errorf("line %d: %w", line.Number, err)
			}
		}
		if ctx.Err() != nil {
			err = errInterrupted
		}
		if err != nil {
			// The events before the faulty line are printed.
			return errors.Join(err, simulation.Flush())
		}
		bar.Add(int64(line.Bytes))
	}
	if until == nil {
		return simulation.Finish()
	}
	if err := simulation.Advance(until.UnixMilli()); err != nil {
		return err
	}
	return simulation.Flush()
}
