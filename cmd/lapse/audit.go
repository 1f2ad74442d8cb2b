package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	color "github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/audit"
	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/host"
)

// audit reads a log, live or exported, through package audit, a second implementation of
// the contract's rules over a whole log. Exit 0 means that nothing was found; 1 that
// something was, or that the log was not read to its end.
//
// Reading runs on a goroutine of its own, since the auditor keeps documents in temporary
// files. When their disk is full it fails in the middle of a read. The reader is then
// stopped and its consumer deleted, and the error is about TMPDIR rather than about the
// log.

func newAuditCommand(a *app) *cobra.Command {
	var conn connection
	var asJSON, partial bool
	cmd := &cobra.Command{
		Use:   "audit [FILE|-]",
		Short: "Check a log: every due expiry, no other, in order",
		Long: `audit checks the log of a database, or of FILE as ` + "`lapse export`" + ` printed it: each version
that came due has exactly one DocumentExpired and no other has one; warnings came once
and in time; documents and collections change in a possible order; log time never goes
back; each mutation is judged once.

Exit code 0 means no findings. A version that came due less than a minute before the
last event is pending, not missing. Documents are in temporary files (TMPDIR).`,
		Example: `  lapse audit
  lapse export > log.jsonl && lapse audit log.jsonl
  lapse export | lapse audit - --json`,
		Args: arguments(0, 1),
	}
	conn.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object instead of a summary")
	cmd.Flags().BoolVar(&partial, "partial", false, "FILE lacks the beginning of the log")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		host.CollectLess()
		ctx, end := context.WithCancel(cmd.Context())
		defer end()
		auditor, err := audit.New(audit.Options{Stream: len(args) == 0, Partial: partial})
		if err != nil {
			return err
		}
		var report audit.Report
		done := make(chan error, 1)
		go func() {
			var err error
			if len(args) == 0 {
				err = a.auditLog(ctx, &conn, auditor)
			} else {
				err = a.auditFile(ctx, args[0], auditor)
			}
			if err == nil {
				report, err = auditor.Finish()
			}
			done <- errors.Join(err, auditor.Close())
		}()
		select {
		case err = <-done:
		case err = <-auditor.Failed():
			end()
			// A call of the auditor may never return now, so nothing waits for Close.
			// Abandon removes its files.
			select { // the reader of the log deletes its consumer
			case <-done:
			case <-time.After(patienceAtEnd):
			}
			err = fmt.Errorf("the temporary files of the audit fail: %w: set TMPDIR to a directory with more space", errors.Join(err, auditor.Abandon()))
		}
		if err != nil {
			// An interrupt makes other errors likely; it is the cause.
			if cmd.Context().Err() != nil {
				err = errors.New("interrupted: the log was not checked to its end, start again")
			}
			return err
		}
		out := &output{app: a, json: asJSON}
		if asJSON {
			line, err := json.Marshal(&report)
			if err != nil {
				return err
			}
			if err := out.document(line); err != nil {
				return err
			}
		} else if err := out.report(&report); err != nil {
			return err
		}
		// The findings are printed by now, so the error only counts them.
		if n, shown := report.Count(), len(report.Findings); n > uint64(shown) {
			return fmt.Errorf("the audit has %d findings and prints the first ones of each rule, %d: start with sequence %d", n, shown, report.Findings[0].Seq)
		} else if n > 0 {
			return fmt.Errorf("the audit has %s: start with sequence %d", plural(n, "finding"), report.Findings[0].Seq)
		}
		return nil
	}
	return cmd
}

// refuseOtherLog returns an error if the log is empty, which ends at last, and those who
// serve the database have another: nothing would be found in this one. That happens with a
// login to another account of the same NATS server, in which somebody has made a stream of
// this name.
func refuseOtherLog(ctx context.Context, lapse *client.Client, last uint64) error {
	if last > 0 {
		return nil
	}
	status, err := lapse.Status(ctx)
	if err != nil || status.Seq == 0 { // nobody has more
		return nil
	}
	return fmt.Errorf("the log of database %s is empty in this NATS account, and lapse serves one of %s: log in to the account that has it; "+
		"remove stream LAPSE_%[1]s from this one if a lapse created it here by mistake", lapse.Database(), plural(status.Seq, "event"))
}

// auditFile audits an exported log. The bar counts bytes, as the number of lines is
// unknown.
func (a *app) auditFile(ctx context.Context, name string, auditor *audit.Auditor) error {
	file, size, err := a.openInput(name)
	if err != nil {
		return err
	}
	defer file.Close()
	bar := newProgress(a.stderr, "audit", size)
	defer bar.Done()
	return auditor.Lines(ctx, file, func(bytes int) { bar.Add(int64(bytes)) })
}

// auditLog audits the log of a database up to its present end, internal events included. A
// message that is no event of lapse is a finding (Foreign), not an error.
func (a *app) auditLog(ctx context.Context, conn *connection, auditor *audit.Auditor) error {
	lapse, hangUp, err := conn.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp()
	first, last, err := lapse.LogBounds(ctx)
	if err != nil {
		return err
	}
	if err := refuseOtherLog(ctx, lapse, last); err != nil {
		return err
	}
	bar := newProgress(a.stderr, "audit", int64(last+1-first))
	defer bar.Done()
	// Sequences have to be without gaps, as the log is when nothing trims it meanwhile.
	next := first
	for entry, err := range lapse.Log(ctx) {
		if err != nil {
			return err
		}
		if entry.Seq > next && next > first {
			// Only trimming explains a gap: retention removes the oldest events.
			if first, _, err := lapse.LogBounds(ctx); err != nil {
				return err
			} else if first > next {
				return fmt.Errorf("retention trimmed the log up to sequence %d while the audit was at %d: start it again", first-1, next-1)
			}
		}
		next = entry.Seq + 1
		bar.Add(1)
		if entry.Event == nil {
			auditor.Foreign(entry.Seq, entry.Fault)
		} else if err := auditor.Event(entry.Event.Schema()); err != nil {
			return err
		}
	}
	return nil
}

// report prints a summary for people, and a line for each finding.
func (out *output) report(r *audit.Report) error {
	p := palette(out.colour && out.isTerminal(out.stdout))
	t := out.facts(p)
	// Facts first, in the order of the log; what was found comes last, where the eye ends.
	row := func(name, format string, args ...any) { t.add(name, fmt.Sprintf(format, args...)) }
	moment := func(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05.000") }
	if r.Events == 0 {
		row("log", "empty")
	} else {
		row("log", "sequence %d to %d, %s to %s", r.First, r.Last, moment(r.FirstTime), moment(r.LastTime))
	}
	if !r.Complete {
		row("begins", "at %d: earlier events are not checked", r.First)
	}
	var types []string
	for _, t := range slices.Sorted(maps.Keys(r.Types)) {
		types = append(types, fmt.Sprintf("%d %s", r.Types[t], t))
	}
	row("events", "%d: %s", r.Events, strings.Join(types, ", "))
	row("collections", "%d", r.Collections)
	row("documents", "%d alive", r.Documents)
	row("came due", "%d: %d expired, %d pending, %d missing", r.Due, r.Expired, r.Pending, r.Lost)
	if r.Mutations > 0 {
		mutations := fmt.Sprint(r.Mutations)
		if r.Unexplained > 0 {
			mutations += fmt.Sprintf(", %d between them without an event here, as repeats are in an export", r.Unexplained)
		}
		row("mutations", "%s", mutations)
	}
	if r.Count() == 0 {
		row("findings", "none")
		return out.render(t)
	}
	var rules []string
	for _, rule := range r.Rules() {
		rules = append(rules, fmt.Sprintf("%d %s", r.Found[rule], rule))
	}
	row("findings", "%s", p.paint(fmt.Sprintf("%d: %s", r.Count(), strings.Join(rules, ", ")), color.FgRed))
	if err := out.render(t); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteByte('\n')
	for _, f := range r.Findings {
		what := string(f.Collection)
		if f.ID != "" {
			what += "/" + string(f.ID)
		}
		fmt.Fprintf(&b, "%d  %s  %s  %s\n", f.Seq, p.paint(string(f.Rule), color.FgRed), printable(what), printable(f.Message))
	}
	if more := r.Count() - uint64(len(r.Findings)); more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	if r.Headless {
		b.WriteString("If the beginning of this log was trimmed or left out, audit it with --partial.\n")
	}
	_, err := io.WriteString(out.stdout, b.String())
	return err
}
