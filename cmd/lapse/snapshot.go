package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	color "github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Snapshots of the projection. create, list and verify are requests, which lapse serve
// answers. restore works on the files of a stopped one: it replaces the projection, or with
// --new-log the log, too. It is the only command here that writes below --store-dir, and
// takes its lock for that.

func newSnapshotCommand(a *app) *cobra.Command {
	cmd := group("snapshot", "Create, list, verify and restore snapshots",
		newSnapshotCreateCommand(a),
		newSnapshotListCommand(a),
		newSnapshotVerifyCommand(a),
		newSnapshotRestoreCommand(a),
	)
	cmd.Example = "  lapse snapshot create\n  lapse snapshot list"
	return cmd
}

// snapshotTimeout is the timeout of snapshot requests: each reads or writes the whole
// projection.
const snapshotTimeout = time.Hour

// newSnapshotCreateCommand asks for a snapshot now, and prints it once it was read back.
func newSnapshotCreateCommand(a *app) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{Use: "create", Short: "Create a snapshot now and verify it", Example: "  lapse snapshot create", Args: arguments(0, 0)}
	conn.addFlags(cmd)
	conn.patient(cmd, snapshotTimeout)
	out := a.addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		reply, err := conn.do(cmd.Context(), "snapshot.create", "", "", nil)
		if err != nil {
			return err
		}
		return out.document(reply)
	}
	return cmd
}

// newSnapshotListCommand lists snapshots. Faults of unsound ones stand below the table.
func newSnapshotListCommand(a *app) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{Use: "list", Short: "List snapshots, newest first", Example: "  lapse snapshot list", Args: arguments(0, 0)}
	conn.addFlags(cmd)
	out := a.addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		list, err := listSnapshots(cmd.Context(), &conn)
		if err != nil {
			return err
		}
		if !out.forPeople() {
			return out.lines(list)
		}
		p := out.palette()
		var rows [][]any
		faults := ""
		for _, raw := range list {
			var s schema.Snapshot
			if err := readReply(raw, &s); err != nil {
				return err
			}
			sound := "yes"
			if !s.Sound {
				sound = p.paint("no", color.FgRed)
				faults += p.paint(fmt.Sprintf("%d: %s", s.Seq, printable(s.Fault)), color.FgRed) + "\n"
			}
			rows = append(rows, []any{s.Seq, showMillis(s.LogTime), showMillis(s.Created), s.Bytes, printable(s.Digest), sound})
		}
		_, err = fmt.Fprint(out.stdout, out.list([]string{"SEQUENCE", "LOG TIME", "MADE", "BYTES", "DIGEST", "SOUND"}, rows, 4)+faults)
		return err
	}
	return cmd
}

// showMillis formats a log time for people, "" for none.
func showMillis(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05")
}

func listSnapshots(ctx context.Context, conn *connection) ([]json.RawMessage, error) {
	list, _, err := ask[struct {
		Snapshots []json.RawMessage `json:"snapshots"`
	}](ctx, conn, "snapshot.list", "", "", nil)
	return list.Snapshots, err
}

// newSnapshotVerifyCommand reads a snapshot back, the newest one without an argument. It
// prints the result in any case, and exits with 1 if the snapshot is not sound, for cron
// jobs.
func newSnapshotVerifyCommand(a *app) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:   "verify [SEQ]",
		Short: "Read a snapshot back and count its documents",
		Long: `verify reads a snapshot back, the newest if none is named, counts its documents and
compares them with its digest. It ends with 1 if the snapshot is not sound.`,
		Example: "  lapse snapshot verify\n  lapse snapshot verify 4711",
		Args:    arguments(0, 1),
	}
	conn.addFlags(cmd)
	conn.patient(cmd, snapshotTimeout)
	out := a.addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		seq, err := snapshotArgument(args)
		if err != nil {
			return err
		}
		if seq == 0 {
			list, err := listSnapshots(cmd.Context(), &conn)
			if err != nil {
				return err
			}
			// An error, since a check that checked nothing must not look sound.
			if len(list) == 0 {
				return errors.New("there is no snapshot: make one with `lapse snapshot create`")
			}
			var newest schema.Snapshot
			if err := readReply(list[0], &newest); err != nil {
				return err
			}
			seq = newest.Seq
		}
		s, reply, err := ask[schema.Snapshot](cmd.Context(), &conn, "snapshot.verify", strconv.FormatUint(seq, 10), "", nil)
		if err != nil {
			return err
		}
		if err := out.document(reply); err != nil {
			return err
		}
		if !s.Sound {
			return fmt.Errorf("snapshot %d is not sound: %s", seq, s.Fault)
		}
		return nil
	}
	return cmd
}

// snapshotArgument returns the sequence of a snapshot, 0 if none is given.
func snapshotArgument(args []string) (seq uint64, err error) {
	if len(args) == 0 {
		return 0, nil
	}
	seq, err = strconv.ParseUint(args[0], 10, 64)
	if err != nil || seq == 0 {
		return 0, usageErrorf("snapshot %q: give its sequence, as `lapse snapshot list` shows it", args[0])
	}
	return seq, nil
}

// restoreFlags are the flags of snapshot restore.
type restoreFlags struct {
	host.Options
	database string
	newLog   bool
	external externalFlags
}

// newSnapshotRestoreCommand restores a projection, and says which snapshot it is.
func newSnapshotRestoreCommand(a *app) *cobra.Command {
	var f restoreFlags
	cmd := &cobra.Command{
		Use:   "restore [SEQ]",
		Short: "Restore the projection from a snapshot while lapse is stopped",
		Long: `restore replaces the projection with a snapshot: SEQ, or the newest sound one. lapse
must not be running on the store directory. The next start folds the rest of the log.

If the log is lost, or ends before the snapshot, --new-log creates an empty log that
continues after the snapshot. No lapse may serve the database meanwhile. Later events
are lost, and so is what is left of the old log; sequences continue.`,
		Example: `  lapse snapshot restore
  lapse snapshot restore 42000 --new-log --store-dir /var/lib/lapse
  lapse snapshot restore --nats-url nats://n1,nats://n2,nats://n3 \
    --replicas 3 --new-log`,
		Args: arguments(0, 1),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.StoreDir, "store-dir", "data", "`DIR` of lapse serve")
	flags.StringVarP(&f.database, "database", "d", "main", "`NAME` of the database")
	flags.BoolVar(&f.newLog, "new-log", false, "create a new log after the snapshot if the existing log is lost or ends before it")
	addReplicasFlag(flags, &f.Processor.Replicas, "replicas of a new log (default that of the existing log, or 1)")
	out := a.addOutputFlag(cmd)
	sure := a.addYesFlag(cmd)
	addGroup(flags, "External NATS server", f.external.addFlags)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		seq, err := snapshotArgument(args)
		if err != nil {
			return err
		}
		if err := f.check(); err != nil {
			return err
		}
		// A snapshot alone replaces a projection, which the log could make again; a new log
		// ends the old one.
		if f.newLog && sure.needed() {
			if err := sure.ask(cmd.Context(), fmt.Sprintf("Replace the log of database %s by an empty one after the snapshot? Its later events are lost.", f.database)); err != nil {
				return err
			}
		}
		snapshot, err := a.restoreSnapshot(cmd.Context(), f, seq)
		if err != nil {
			return err
		}
		text, err := json.Marshal(snapshot)
		if err != nil {
			return err
		}
		return out.document(text)
	}
	return cmd
}

// check completes the options, and returns an error for flags that do not go together.
func (f *restoreFlags) check() error {
	f.External = f.external.external()
	if err := f.Check(); err != nil {
		return err
	}
	if f.Processor.Replicas != 0 && !f.newLog {
		return usageErrorf("--replicas is for a new log: give --new-log, too")
	}
	return f.external.check()
}

// restoreSnapshot restores the snapshot with a sequence, the newest sound one for 0.
func (a *app) restoreSnapshot(ctx context.Context, f restoreFlags, seq uint64) (schema.Snapshot, error) {
	database, err := schema.ParseDatabaseName(f.database)
	if err != nil {
		return schema.Snapshot{}, usageErrorf("--database: %v", err)
	}
	lines := observe.LimitLog(slog.NewTextHandler(a.stderr, nil))
	defer lines.Close()
	f.Databases, f.Processor.Logger = []schema.DatabaseName{database}, slog.New(lines)
	return host.Restore(ctx, f.Options, seq, f.newLog)
}
