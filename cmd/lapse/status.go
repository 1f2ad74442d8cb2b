package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	color "github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
)

// statusFlags are the flags of status.
type statusFlags struct {
	of  string
	all bool

	databases bool          // --database was not given: --all shows the processes of all databases
	watch     time.Duration // 0 without --watch
}

// watchInterval is the interval of --watch without a value.
const watchInterval = 2 * time.Second

func newStatusCommand(a *app) *cobra.Command {
	var conn connection
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the status of a database or process",
		Long: `status asks any process that serves the database, with --all every process, of all
databases unless --database is given. With --of it asks one process at its --metrics
address over HTTP, without NATS, as a healthcheck: if that process is not ready, it
prints the reason and exits with 1. If the process serves several databases, that is
about all of them, or the one of --database.`,
		Example: `  lapse status --watch
  lapse status --all --watch 10s
  lapse status --of 127.0.0.1:9090`,
	}
	// pflag takes the INTERVAL of `--watch INTERVAL`, which may be missing, for an argument.
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && f.watch == watchInterval {
			if err := cmd.Flags().Set("watch", args[0]); err != nil {
				return flagError(cmd, err)
			}
			return nil
		}
		return arguments(0, 0)(cmd, args)
	}
	conn.addFlags(cmd)
	out := a.addOutputFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.of, "of", "", "ask the process with --metrics `HOST:PORT`")
	flags.BoolVar(&f.all, "all", false, "show every process, one a line")
	flags.VarP(&durationFlag{to: &f.watch, least: 100 * time.Millisecond}, "watch", "w", "repeat every `INTERVAL` until interrupted (2s without a value)")
	flags.Lookup("watch").NoOptDefVal = watchInterval.String()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(cmd); err != nil {
			return err
		}
		f.databases = !cmd.Flags().Changed("database")
		source := newStatusSource(&conn, out, &f)
		defer source.close()
		if f.watch > 0 {
			return out.watchStatus(cmd.Context(), source, f.watch)
		}
		page, err := source.page(cmd.Context(), nil)
		if err != nil {
			return err
		}
		_, err = out.stdout.Write(page)
		return err
	}
	return cmd
}

// check returns a usage error for flags that do not go together.
func (f *statusFlags) check(cmd *cobra.Command) error {
	given := func(name string) bool { return cmd.Flags().Changed(name) }
	if given("of") {
		if err := checkAddress("--of", f.of); err != nil {
			return err
		}
		for _, other := range []string{"all", "server", "creds", "nkey", "inbox-prefix", "context", "tls-ca", "tls-cert", "tls-key"} {
			if given(other) {
				return usageErrorf("--of and --%s given: use one of them", other)
			}
		}
	}
	return nil
}

// since is the previous page of --watch, from which rates are computed.
type since struct {
	at     time.Time
	status client.Status
}

// rate returns the growth of a number per second, "" if unknown.
func (s *since) rate(now time.Time, before, after uint64) string {
	passed := now.Sub(s.at).Seconds()
	if passed <= 0 || after < before {
		return ""
	}
	return fmt.Sprintf(", %.0f/s", float64(after-before)/passed)
}

// status renders a page for people. Numbers that should be 0 are red if they are not.
func (out *output) status(s client.Status, before *since) []byte {
	p := out.palette()
	alarm := func(n int64) string {
		if n == 0 {
			return "0"
		}
		return p.paint(fmt.Sprint(n), color.FgRed)
	}
	ms := func(n int64) string { return (time.Duration(n) * time.Millisecond).String() }
	t := out.facts(p)
	row := t.add
	gap := func() { t.AppendRow(table.Row{"", ""}) }

	row("database", p.paint(printable(s.Database), color.Bold))
	row("role", fmt.Sprintf("%s, lapse %s", printable(s.Role), printable(s.Version)))
	clock := "right"
	if c := s.Clock; c.Suspect {
		clock = p.paint(fmt.Sprintf("suspect for %s, %d writes refused: %s", ms(c.ForMs), c.Refused, printable(c.Reason)), color.FgRed)
	}
	row("clock", clock)
	gap()
	row("documents", fmt.Sprint(s.Documents))
	if s.Held > 0 {
		row("held", fmt.Sprint(s.Held))
	}
	row("pending expiry", fmt.Sprint(s.PendingExpiry))
	row("overdue", alarm(s.Overdue))
	row("lateness", fmt.Sprintf("p50 %s, p99 %s, max %s (last minute)", ms(s.LatenessMs.P50), ms(s.LatenessMs.P99), ms(s.LatenessMs.Max)))
	if o := s.LatenessObjective; o != nil {
		row("objective", p.objective(o))
	}
	gap()
	grown := ""
	if before != nil && !before.at.IsZero() {
		grown = before.rate(time.Now(), before.status.Seq, s.Seq)
	}
	row("log", fmt.Sprintf("sequence %d%s, %s", s.Seq, grown, time.UnixMilli(s.LogTime).UTC().Format("2006-01-02 15:04:05.000 MST")))
	if s.LogEnd > 0 {
		row("not folded", alarm(int64(s.LogEnd-min(s.Seq, s.LogEnd))))
	}
	row("mutations behind", alarm(int64(s.MutationsBehind)))
	row("requests waiting", fmt.Sprint(s.Waiting))
	row("digest", printable(s.Digest))
	return append([]byte(t.Render()), '\n')
}

// readStatus decodes a status.
func readStatus(text []byte) (s client.Status, err error) {
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("the reply cannot be read: %w", err)
	}
	return s, nil
}

// objective describes whether a lateness objective was kept, red if not.
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
