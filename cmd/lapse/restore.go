package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/backup"
	"github.com/lapsedb/lapse/host"
)

// newRestoreCommand restores a database from what backup has written. The backup is
// verified as a whole before anything is changed, so a damaged one costs nothing. What it
// would lose, events after the backup, needs --replace, and on a terminal a y.
func newRestoreCommand(a *app) *cobra.Command {
	var conn connection
	var with backup.Options
	var storeDir string
	cmd := &cobra.Command{
		Use:   "restore DIR|-",
		Short: "Restore a database from a backup while lapse is stopped",
		Long: `restore verifies a backup of lapse backup, and restores the database that it has: into a
store directory without lapse serve, or with --server on an external NATS server where
every lapse of the database has stopped. Standard input, for -, is a tar.

A database that has events that the backup does not have stays as it is, unless --replace
is given. Each lapse folds its projection again where it does not match. If restore is
interrupted, lapse refuses the database: run it again.`,
		Example: `  lapse restore /backup/main --store-dir /var/lib/lapse
  lapse restore /backup/main --server nats://n1 --nkey operator.nk --replace`,
		Args: arguments(1, 1),
	}
	conn.addFlags(cmd)
	out := a.addOutputFlag(cmd)
	sure := a.addYesFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&storeDir, "store-dir", "", "restore into `DIR` of lapse serve, which must not run there")
	flags.BoolVar(&with.Replace, "replace", false, "restore also over a database with events that the backup does not have: they are lost")
	addReplicasFlag(flags, &with.Replicas, "replicas of the streams (default as in the backup, or 1 with --store-dir)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkStoreDir(cmd, storeDir); err != nil {
			return err
		}
		if storeDir != "" && with.Replicas > 1 {
			return usageErrorf("--replicas %d: the embedded NATS server of --store-dir is one", with.Replicas)
		}
		dir, remove, err := a.backupDir(args[0])
		if err != nil {
			return err
		}
		defer remove()
		m, err := backup.Verify(dir)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("database") && conn.database != string(m.Database) {
			return usageErrorf("--database %s: the backup holds database %s", conn.database, m.Database)
		}
		// The backup says which database it is; --database can only confirm it.
		conn.database = string(m.Database)
		// Without --replace nothing is lost, so nothing is asked.
		if with.Replace && sure.needed() {
			question := fmt.Sprintf("Replace database %s by its backup of %s? Its later events are lost.", m.Database, m.Time.Format("2006-01-02 15:04:05Z"))
			if err := sure.ask(cmd.Context(), question); err != nil {
				return err
			}
		}
		bar := newProgress(a.stderr, "bytes", m.Bytes())
		with.Progress = bar.Add
		if storeDir != "" {
			err = a.restoreStore(cmd.Context(), storeDir, dir, m, with)
		} else {
			err = conn.restore(cmd, dir, m, with)
		}
		bar.Done()
		if err == nil {
			return out.backup(m)
		}
		return interruptedOr(cmd, err)
	}
	return cmd
}

// backupDir returns the directory of a backup. For - it unpacks standard input to a
// temporary one, which remove removes: a tar is read once, and verifying before restoring
// needs it twice.
func (a *app) backupDir(argument string) (dir string, remove func(), err error) {
	if argument != "-" {
		return argument, func() {}, nil
	}
	if dir, err = os.MkdirTemp("", "lapse-restore-"); err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	if err := backup.Unpack(a.stdin, dir); err != nil {
		remove()
		return "", nil, fmt.Errorf("standard input: %w", err)
	}
	return dir, remove, nil
}

// checkStoreDir returns a usage error for flags of a connection together with --store-dir:
// nobody can mean both. --database names what is in the directory, and --timeout does no
// harm.
func checkStoreDir(cmd *cobra.Command, storeDir string) (err error) {
	cmd.PersistentFlags().VisitAll(func(flag *pflag.Flag) { // those of connection.addFlags
		if flag.Changed && err == nil && storeDir != "" && flag.Name != "database" && flag.Name != "timeout" {
			err = usageErrorf("--store-dir and --%s given: name a store directory, or a NATS server", flag.Name)
		}
	})
	return err
}

// restore restores on the NATS server of the connection.
func (c *connection) restore(cmd *cobra.Command, dir string, m *backup.Manifest, with backup.Options) error {
	js, hangUp, err := c.operator(cmd)
	if err != nil {
		return err
	}
	defer hangUp()
	return backup.Restore(cmd.Context(), js, dir, m, with)
}

// restoreStore restores into a store directory, by an embedded NATS server at a free port.
// One server has one replica.
func (a *app) restoreStore(ctx context.Context, storeDir, dir string, m *backup.Manifest, with backup.Options) error {
	o, end := a.storeOptions(storeDir)
	defer end()
	with.Replicas = 1
	return host.RestoreBackup(ctx, o, dir, m, with)
}
