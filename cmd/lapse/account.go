package main

import (
	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/host"
)

// newAccountCommand prints configuration, and neither reads nor starts anything: package
// host knows what an account needs, and the user pastes or includes it. It stands below
// config, since its output belongs into a file of serve.
func newAccountCommand(a *app) *cobra.Command {
	var databases string
	var durables []string
	cmd := &cobra.Command{
		Use:   "account APP",
		Short: "Print an account for an application with streams of its own",
		Long: `account prints an account of NATS for the file of lapse serve --nats-config. It has a user,
named like the account in lower case, whose password is in a variable, and imports all
with which an application sends requests and reads the log, beside its own streams.`,
		Example: `  lapse config account APP > app.conf
  echo 'accounts { include app.conf }' > lapse.conf
  APP_PASSWORD=secret lapse serve --nats-config lapse.conf
  lapse watch --server nats://app:secret@127.0.0.1 \
    --js-api-prefix LAPSE.API --inbox-prefix _INBOX.app`,
		Args: arguments(1, 1),
	}
	cmd.Flags().StringVarP(&databases, "database", "d", "main", "`NAME`[,NAME…] of the databases that it reaches")
	cmd.Flags().StringSliceVar(&durables, "durable", nil, "`NAME` of a durable consumer from which it pulls, as client.Durable does; repeatable (default APP in lower case)")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		names, err := parseDatabases(databases)
		switch {
		case err != nil:
			return err
		case names == nil:
			return usageErrorf("--database %s: name each database: NATS has no wildcard for a part of a stream's name", databases)
		}
		text, err := host.AccountConfig(args[0], names, durables)
		if err == nil {
			_, err = a.stdout.Write([]byte(text))
		}
		return err
	}
	return cmd
}
