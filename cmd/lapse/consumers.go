package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
)

// newConsumersCommand lists consumers, and with --max-behind is a check for monitoring:
// exit 1 names those that are too slow. It prints the list in either case.
func newConsumersCommand(a *app) *cobra.Command {
	var conn connection
	var moments momentFlags
	var most uint64
	cmd := &cobra.Command{
		Use:   "consumers",
		Short: "Show who reads the log, how far behind, and what is stuck",
		Long: `consumers lists the consumers of the log: the events that each has not acknowledged yet,
and when it last acknowledged one. Of a durable of client.Handle it shows the event whose
handler fails. Programs that read for a while, such as watch, have no row on a terminal.`,
		Example: `  lapse consumers
  lapse consumers --max-behind 1000 || echo too slow`,
		Args: arguments(0, 0),
	}
	conn.addFlags(cmd)
	out := a.addOutputFlag(cmd)
	moments.addFlags(cmd.Flags())
	cmd.Flags().Uint64Var(&most, "max-behind", 0, "exit with 1 if a consumer is more than `N` events behind")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := moments.check(); err != nil {
			return err
		}
		lapse, hangUp, err := conn.connect(cmd.Context())
		if err != nil {
			return err
		}
		defer hangUp()
		all, err := lapse.Consumers(cmd.Context())
		if err == nil {
			err = out.consumers(all, moments)
		}
		// --max-behind 0 is a limit, too.
		if err == nil && cmd.Flags().Changed("max-behind") {
			err = slow(all, most)
		}
		return err
	}
	return cmd
}

// consumers prints consumers, for people as a table of those that last. Readers that exist
// only while somebody reads (Consumer.Reader) come and go, and are in the JSON alone.
func (out *output) consumers(all []client.Consumer, moments momentFlags) error {
	var lines []json.RawMessage
	var rows [][]any
	for _, c := range all {
		line, err := json.Marshal(c)
		if err != nil {
			return err
		}
		lines = append(lines, line)
		if c.Reader {
			continue
		}
		acked := "never"
		if c.LastAck != nil {
			acked = moments.show(strconv.FormatInt(c.LastAck.Unix(), 10), out.now())
		}
		rows = append(rows, []any{printable(c.Name), printable(c.Account), behind(c), c.Unacked, c.Seq, acked, trouble(c)})
	}
	switch {
	case !out.forPeople():
		return out.lines(lines)
	case len(rows) == 0:
		_, err := fmt.Fprintln(out.stdout, "no consumer reads the log")
		return err
	}
	_, err := fmt.Fprint(out.stdout, out.list([]string{"CONSUMER", "ACCOUNT", "BEHIND", "UNACKED", "SEQUENCE", "ACKED", ""}, rows, 0, 1))
	return err
}

// behind returns how many events a consumer has not acknowledged, of those it wants: those
// that NATS has not delivered yet, and those that it has.
func behind(c client.Consumer) uint64 { return c.Pending + uint64(c.Unacked) }

// trouble says why a consumer does not go on, as far as NATS knows.
func trouble(c client.Consumer) string {
	switch {
	case c.Paused:
		return "paused"
	case c.Failures > 0:
		return fmt.Sprintf("event %d failed %s", c.Failing, plural(c.Failures, "time"))
	}
	return ""
}

// slow returns an error that names the consumers that are further behind than most.
func slow(all []client.Consumer, most uint64) error {
	var names []string
	for _, c := range all {
		if !c.Reader && behind(c) > most {
			names = append(names, fmt.Sprintf("%s by %d", printable(c.Name), behind(c)))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("more than %s behind: %s", plural(most, "event"), strings.Join(names, ", "))
}
