package main

import (
	"encoding/json"
	"errors"
	"os"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/lapsedb/lapse/backup"
	"github.com/lapsedb/lapse/schema"
)

// Copies of a database, by package backup. backup and restore work on the streams, with the
// rights of an operator, and need no lapse: backup runs while it serves, restore needs it
// stopped.

// operatorInbox begins the reply subjects of the user that nats.conf calls operator. Its
// permissions name no other, so this is the default inbox of the commands that connect as
// operator.
const operatorInbox = "_OPERATOR"

func newBackupCommand(a *app) *cobra.Command {
	var conn connection
	var verify bool
	cmd := &cobra.Command{
		Use:   "backup DIR|-",
		Short: "Copy a database to a directory, or what is new in it",
		Long: `backup copies the log, the mutations, and the snapshot that a trimmed log needs, while
lapse serves the database. A second run into the same DIR copies only the messages after
the last one. Standard output, for -, gets a tar of all.

It connects as the operator: lapse serve --operator-nkey-out FILE makes the key. The
backup has all that the log has, also deleted, expired and held documents.`,
		Example: `  lapse backup /backup/main --nkey operator.nk --verify
  lapse backup - --nkey operator.nk | zstd > main.tar.zst`,
		Args: arguments(1, 1),
	}
	conn.addFlags(cmd)
	out := a.addOutputFlag(cmd)
	cmd.Flags().BoolVar(&verify, "verify", false, "read all of DIR back afterwards, also what earlier runs wrote")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		toTar := args[0] == "-"
		switch {
		case toTar && verify:
			return usageErrorf("--verify reads a directory: leave it out, `lapse restore` verifies the tar")
		case toTar && a.isTerminal(a.stdout):
			return usageErrorf("standard output is a terminal, and - writes a tar there: redirect it to a file")
		}
		js, hangUp, err := conn.operator(cmd)
		if err != nil {
			return err
		}
		defer hangUp()
		ctx, db, bar := cmd.Context(), schema.DatabaseName(conn.database), newProgress(a.stderr, "messages", 0)
		defer bar.Done()
		progress := func(messages uint64) { bar.Set(int64(messages)) }
		if toTar {
			_, err := backup.SaveTar(ctx, js, db, a.stdout, progress)
			return interruptedOr(cmd, err)
		}
		m, err := backup.Save(ctx, js, db, args[0], progress)
		if err == nil && verify {
			m, err = backup.Verify(args[0])
		}
		if err != nil {
			return interruptedOr(cmd, err)
		}
		bar.Done()
		return out.backup(m)
	}
	return cmd
}

// operator connects as connection.open does, with the inbox of the operator unless another
// one is named. A context has a prefix of its own.
func (c *connection) operator(cmd *cobra.Command) (jetstream.JetStream, func(), error) {
	if c.inbox == "" && c.context == "" && os.Getenv(contextVariable) == "" {
		c.inbox = operatorInbox
	}
	lapse, hangUp, err := c.connect(cmd.Context())
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(lapse.Conn(), jetstream.WithDefaultTimeout(c.timeout))
	if err != nil {
		hangUp()
	}
	return js, hangUp, err
}

// interruptedOr returns err, or one that says that the command was interrupted. Every
// command here may be repeated after that: it goes on, or begins again.
func interruptedOr(cmd *cobra.Command, err error) error {
	if err != nil && cmd.Context().Err() != nil {
		return errors.New("interrupted: run it again")
	}
	return err
}

// backup prints what a backup has, for backup and restore alike:
//
//	{"bytes":8192,"database":"main","events":42,"first":1,"seq":42,"time":"…"}
func (out *output) backup(m *backup.Manifest) error {
	log := m.Log()
	text, err := json.Marshal(map[string]any{"database": m.Database, "first": log.First, "seq": log.Last, "events": log.Messages, "bytes": m.Bytes(), "time": m.Time})
	if err != nil {
		return err
	}
	return out.document(text)
}
