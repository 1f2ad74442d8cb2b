package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/schema"
)

// Restore replaces the projection of the only one of o.Databases with a snapshot: that of
// seq, or the newest sound one if seq is 0. With newLog it makes an empty log that
// continues after the snapshot, if the log is lost or ends before it. Nothing may serve the
// database meanwhile: the lock of the store directory makes sure of that where the store
// is, not on other machines. Of the options it uses StoreDir, External, and Logger and
// Replicas of Processor.
func Restore(ctx context.Context, o Options, seq uint64, newLog bool) (schema.Snapshot, error) {
	if err := o.Check(); err != nil {
		return schema.Snapshot{}, err
	}
	o = o.ensureDefaults()
	t := newTarget(o)
	defer t.close()
	var err error
	if o.External != nil {
		err = t.openConnections()
	} else {
		err = t.openStore(embedded.Options{Databases: t.Databases, Unchecked: newLog}) // the log may be damaged
	}
	if err != nil {
		return schema.Snapshot{}, err
	}
	connections, database := t.Connections, o.Databases[0]
	if o.External != nil {
		connections = t.of(0)
	}
	return processor.RestoreSnapshot(ctx, connections, processor.Options{
		Database: database, Dir: projectionDir(t.StoreDir, database), Logger: t.Processor.Logger, Replicas: o.Processor.Replicas}, seq, newLog)
}

// checkStore returns an error if there is no store of lapse in a directory. Without it, a
// misspelt directory would become an empty store.
func checkStore(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "jetstream")); err != nil {
		return fmt.Errorf("there is no store of lapse in %s: give the --store-dir or --nats-url of serve", dir)
	}
	return nil
}

// openStore starts an embedded server on a free port of loopback, for a command that works
// on a store that nobody serves. It syncs always, whatever serve does.
func (t *target) openStore(o embedded.Options) error {
	if err := checkStore(t.StoreDir); err != nil {
		return err
	}
	o.StoreDir, o.Listen, o.SyncAlways, o.Logger = t.StoreDir, "127.0.0.1:0", true, t.Processor.Logger
	server, err := embedded.Start(o)
	if err != nil {
		return err
	}
	t.damage = server.Damage
	t.closers = append(t.closers, server.Shutdown)
	return t.register(&t.Log)(server.ConnectLog())
}
