package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/catalog"
	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Databases as a whole, by package catalog, with the rights of an operator: on a NATS
// server, or in a store directory on which no lapse runs. delete is the one command that
// nothing undoes. So it asks for the name instead of y, and without a terminal it needs
// --yes, where other commands just go on.

func newDatabaseCommand(a *app) *cobra.Command {
	cmd := group("database", "List and delete databases", newDatabaseListCommand(a), newDatabaseDeleteCommand(a))
	cmd.Example = "  lapse database list --nkey operator.nk"
	return cmd
}

func newDatabaseListCommand(a *app) *cobra.Command {
	var conn connection
	var storeDir string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List databases, their streams, snapshots, lease and size",
		Long: `list connects as the operator, and shows the databases of the account, whether or not a
lapse serves them. With --store-dir it shows those of a directory without lapse serve, with
their projections.`,
		Example: `  lapse database list --nkey operator.nk
  lapse database list --store-dir /var/lib/lapse`,
		Args: arguments(0, 0),
	}
	conn.addFlags(cmd)
	out := a.addOutputFlag(cmd)
	cmd.Flags().StringVar(&storeDir, "store-dir", "", "list the databases in `DIR` of lapse serve, which must not run there")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("database") {
			return usageErrorf("--database given: list shows all databases")
		}
		if err := checkStoreDir(cmd, storeDir); err != nil {
			return err
		}
		all, err := conn.databases(cmd, storeDir)
		if err != nil {
			return interruptedOr(cmd, err)
		}
		return out.databases(all)
	}
	return cmd
}

// databases lists the databases of a directory, or of the account that the connection
// reaches.
func (c *connection) databases(cmd *cobra.Command, storeDir string) ([]*catalog.Database, error) {
	if storeDir != "" {
		return host.StoredCatalog(storeDir)
	}
	js, hangUp, err := c.operator(cmd)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	return catalog.List(cmd.Context(), js)
}

// databases prints databases. The notes below the table are about those whose deletion or
// restore was interrupted.
func (out *output) databases(all []*catalog.Database) error {
	var lines []json.RawMessage
	var rows [][]any
	notes := ""
	for _, db := range all {
		line, err := json.Marshal(db)
		if err != nil {
			return err
		}
		lines = append(lines, line)
		served := map[bool]string{true: "yes", false: "no"}[db.Served]
		rows = append(rows, []any{db.Name, served, len(db.Streams), db.Snapshots, printable(db.Lease), db.Projection, db.Bytes})
		if db.Interrupted != "" {
			notes += printable(db.Interrupted) + "\n"
		}
	}
	if !out.forPeople() {
		return out.lines(lines)
	}
	_, err := fmt.Fprint(out.stdout, out.list([]string{"DATABASE", "SERVED", "STREAMS", "SNAPSHOTS", "LEASE", "PROJECTION", "BYTES"}, rows, 0, 4)+notes)
	return err
}

func newDatabaseDeleteCommand(a *app) *cobra.Command {
	var conn connection
	var storeDir string
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a database that no lapse serves",
		Long: `delete deletes a database for good: log, mutations, snapshots, lease and consumers. It
connects as the operator. With --store-dir it deletes from a directory without lapse serve,
the projection too. It asks for the name, and refuses a database that is served or has held
documents. If it is interrupted, lapse refuses what remains: run it again.`,
		Example: `  lapse database delete shop --nkey operator.nk
  lapse database delete shop --store-dir /var/lib/lapse --yes`,
		Args: arguments(1, 1),
	}
	conn.addFlags(cmd)
	out := a.addOutputFlag(cmd)
	sure := a.addYesFlag(cmd)
	cmd.Flags().Lookup("yes").Usage = "do not ask for the name"
	cmd.Flags().StringVar(&storeDir, "store-dir", "", "delete from `DIR` of lapse serve, which must not run there")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// --database has a default, which must not decide what is deleted.
		if cmd.Flags().Changed("database") {
			return usageErrorf("--database given: the argument of delete is the database")
		}
		name, err := schema.ParseDatabaseName(args[0])
		if err != nil {
			return usageErrorf("%v", err)
		}
		if err := checkStoreDir(cmd, storeDir); err != nil {
			return err
		}
		if err := sure.askName(cmd.Context(), args[0]); err != nil {
			return err
		}
		streams, err := conn.deleteDatabase(cmd, a, storeDir, name)
		if err != nil {
			return interruptedOr(cmd, err)
		}
		return out.deleted(name, streams, storeDir)
	}
	return cmd
}

// deleteDatabase deletes a database and returns its streams. With a store directory it
// starts the embedded NATS server on it, at a free port, to check the database, and removes
// the projection as well.
func (c *connection) deleteDatabase(cmd *cobra.Command, a *app, storeDir string, name schema.DatabaseName) ([]string, error) {
	if storeDir != "" {
		o, end := a.storeOptions(storeDir)
		defer end()
		return host.DeleteDatabase(cmd.Context(), o, name)
	}
	js, hangUp, err := c.operator(cmd)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	return catalog.Delete(cmd.Context(), js, name)
}

// deleted prints what a deletion has removed, and reports what is elsewhere: projections
// are on the machines that served the database, and unreachable over NATS.
func (out *output) deleted(name schema.DatabaseName, streams []string, storeDir string) error {
	text, err := json.Marshal(map[string]any{"database": name, "streams": append([]string{}, streams...)})
	if err == nil {
		err = out.document(text)
	}
	if err == nil && storeDir == "" {
		out.leftOut("projections are still there: remove projection/%s from the --store-dir of each lapse that has served %s", name, name)
	}
	return err
}

// storeOptions returns the options to change a store directory, with a log of warnings on
// standard error. The caller calls end.
func (a *app) storeOptions(storeDir string) (o host.Options, end func()) {
	lines := observe.LimitLog(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	o.StoreDir, o.Processor.Logger = storeDir, slog.New(lines)
	return o, lines.Close
}

// askName returns an error unless the answer is name. Without a terminal it needs --yes:
// nothing brings a database back.
func (c *confirmation) askName(ctx context.Context, name string) error {
	switch {
	case c.yes:
		return nil
	case !c.needed():
		return usageErrorf("there is no terminal to ask at: give --yes to delete database %s", name)
	case strings.TrimSpace(c.read(ctx, fmt.Sprintf("Delete database %s for good? Type its name: ", name))) != name:
		return fmt.Errorf("nothing was changed: type %s, or give --yes", name)
	}
	return nil
}
