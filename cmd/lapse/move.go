package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/client"
)

// moveTimeout is how long a move may take.
const moveTimeout = 30 * time.Second

// newMoveCommand is the contract's request move: it returns when the other process writes,
// and exits with 1 and the reason if none does. Only operators may send it: where nobody
// answers, the user may lack the permission, hence the advice with a time-out.
func newMoveCommand(a *app) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:   "move DB [PROCESS]",
		Short: "Have another process write a database",
		Long: `move hands a database over to another process that serves it, or to PROCESS, and returns
when that writes. The status of the database has the ids of its processes. It takes a user
of the account of the streams, as the operator in nats.conf.`,
		Example: `  lapse status | jq -r '.processes[] | .id + " " + .role'
  lapse move main --nkey operator.nk --inbox-prefix _OPERATOR`,
		Args: arguments(1, 2),
	}
	conn.addFlags(cmd)
	conn.patient(cmd, moveTimeout)
	out := a.addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("database") {
			return usageErrorf("--database given: the first argument of move is the database")
		}
		conn.database = args[0]
		lapse, hangUp, err := conn.connect(cmd.Context())
		if err != nil {
			return err
		}
		defer hangUp()
		to := ""
		if len(args) > 1 {
			to = args[1]
		}
		moved, reply, err := lapse.Move(cmd.Context(), to)
		switch {
		// Nobody replied. If the other process does not take over in time, the writer
		// replies that.
		case reply == nil && errors.Is(err, client.ErrTimeout):
			return fmt.Errorf("nobody who writes database %s has answered within %s: see lapse status, and connect as a user of the account of the streams, such as the operator", args[0], conn.timeout)
		case err != nil:
			return err
		case !out.forPeople():
			return out.document(reply.Body)
		// Asking a process for what it has already is no error: a script may ask twice.
		case moved.To == moved.From:
			_, err = fmt.Fprintf(out.stdout, "%s writes database %s already\n", printable(moved.To), args[0])
		default:
			_, err = fmt.Fprintf(out.stdout, "database %s moved from %s to %s\n", args[0], printable(moved.From), printable(moved.To))
		}
		return err
	}
	return cmd
}
