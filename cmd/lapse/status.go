package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/fatih/color"
	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
)

func newStatusCommand(a *app) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{Use: "status", Short: "Show how the database stands", Args: arguments(0, 0)}
	conn.addFlags(cmd)
	out := a.addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		reply, err := conn.do(cmd.Context(), "status", "", "", nil)
		if err != nil {
			return err
		}
		if !out.forPeople() {
			return out.document(reply)
		}
		var s client.Status
		if err := json.Unmarshal(reply, &s); err != nil {
			return fmt.Errorf("the reply cannot be read: %w", err)
		}
		return out.status(s)
	}
	return cmd
}

// status is a page for people. What should be 0 is red when it isn't.
func (out *output) status(s client.Status) error {
	p := out.palette()
	alarm := func(n int64) string {
		if n == 0 {
			return "0"
		}
		return p.paint(fmt.Sprint(n), color.FgRed)
	}
	ms := func(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
	t := out.table()
	row := func(name, value string) { t.AppendRow([]any{p.faint(name), value}) }
	row("database", p.paint(printable(s.Database), color.Bold))
	row("role", fmt.Sprintf("%s, lapse %s", printable(s.Role), printable(s.Version)))
	row("log", fmt.Sprintf("sequence %d, %s", s.Seq, time.UnixMilli(s.LogTime).UTC().Format("2006-01-02 15:04:05.000 MST")))
	row("documents", fmt.Sprint(s.Documents))
	row("pending expiry", fmt.Sprint(s.PendingExpiry))
	row("overdue", alarm(s.Overdue))
	row("lateness", fmt.Sprintf("p50 %s, p99 %s, max %s (last minute)", ms(s.LatenessMs.P50), ms(s.LatenessMs.P99), ms(s.LatenessMs.Max)))
	if o := s.LatenessObjective; o != nil {
		row("objective", p.objective(o))
	}
	row("mutations behind", alarm(int64(s.MutationsBehind)))
	row("digest", printable(s.Digest))
	clock := "right"
	if c := s.Clock; c.Suspect {
		clock = p.paint(fmt.Sprintf("not believed for %s, %d writes refused: %s", ms(c.ForMs), c.Refused, printable(c.Reason)), color.FgRed)
	}
	row("clock", clock)
	return out.render(t)
}

// objective says how well a lateness objective was kept, red if it was not.
func (p palette) objective(o *client.LatenessObjective) string {
	ms := func(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
	text := fmt.Sprintf("%g%% within %s: ", 100*o.Share, ms(o.Ms))
	switch {
	case o.Kept && o.Expired == 0:
		return text + "nothing expired (last minute)"
	case o.Kept:
		return text + fmt.Sprintf("kept, %d of %d were late (last minute)", o.Late, o.Expired)
	}
	text += fmt.Sprintf("missed, %d of %d were late (last minute)", o.Late, o.Expired)
	if o.OverdueMs > o.Ms {
		text += fmt.Sprintf(", the oldest is overdue for %s", ms(o.OverdueMs))
	}
	return p.paint(text, color.FgRed)
}
