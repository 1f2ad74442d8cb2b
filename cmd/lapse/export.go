package main

import (
	"cmp"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
)

// newExportCommand prints the log from its first event up to its present end, or up to
// --until, as lines that replay, audit and test --load read. Exit 0 means all of it: an
// interruption is an error, however much was printed. A log whose beginning was trimmed is
// exported with a line on standard error.
func newExportCommand(a *app) *cobra.Command {
	var conn connection
	var until string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print the log as JSON lines, up to now",
		Example: `  lapse export > log.jsonl
  lapse export --until 2015-05-17T10:05:03Z > log.jsonl`,
		Args: arguments(0, 0),
	}
	conn.addFlags(cmd)
	out := a.addOutputFlag(cmd)
	cmd.Flags().StringVar(&until, "until", "", "end at a sequence, a time or a duration ago: `SEQ|TIME|DURATION`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		opts := []client.FeedOption{client.FromStart(), client.UntilNow()}
		var end position
		if until != "" {
			var err error
			if end, err = parsePosition("--until", until, time.Now()); err != nil {
				return err
			}
		}
		lapse, hangUp, err := conn.connect(cmd.Context())
		if err != nil {
			return err
		}
		defer hangUp()
		_, last, err := lapse.LogBounds(cmd.Context())
		if err == nil {
			err = refuseOtherLog(cmd.Context(), lapse, last)
		}
		if err == nil {
			// Before the first line, so that a reader of the pipe cannot miss it.
			err = a.tellTrimmed(cmd.Context(), lapse, position{seq: 1})
		}
		if err == nil && until != "" {
			end.byClock(cmd.Context(), lapse)
			opts = append(opts, end.until())
		}
		// After an interrupt the loop below reports that, as at any other time.
		if err != nil && cmd.Context().Err() == nil {
			return err
		}
		printer := newEventPrinter(out)
		stderr := a.stderr
		if a.isTerminal(a.stdout) {
			stderr = nil // the events show the progress
		}
		bar := newProgress(stderr, "events", 0)
		for e, err := range lapse.Changes(cmd.Context(), opts...) {
			if err == nil {
				bar.Add(1)
				err = printer.print(e.Schema())
			} else if cmd.Context().Err() != nil {
				err = errors.New("interrupted: the export is incomplete, start it again")
			}
			if err != nil {
				bar.Done()
				return cmp.Or(printer.flush(), err)
			}
		}
		bar.Done()
		return printer.flush()
	}
	return cmd
}
