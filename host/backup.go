package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/backup"
	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/schema"
)

// RestoreBackup restores the database that m says, as backup.Verify has returned it, from
// the backup in dir into o.StoreDir, which no process uses. Of the options it uses StoreDir
// and Processor.Logger.
//
// A restore that is interrupted must not look like a database. So a file, restoring-<db>,
// is there from before the first change until after the last one (embedded.Restoring): a
// start refuses the database while it is, and only another RestoreBackup goes on, from the
// beginning. To replace, it removes the streams' files while no server runs, also those
// that are damaged.
func RestoreBackup(ctx context.Context, o Options, dir string, m *backup.Manifest, with backup.Options) error {
	o.Databases = []schema.DatabaseName{m.Database}
	if err := o.Check(); err != nil {
		return err
	}
	o = o.ensureDefaults()
	if with.Replace || embedded.Restoring.Begun(o.StoreDir, m.Database) {
		err := locked(o.StoreDir, func() error {
			if err := embedded.Restoring.Begin(o.StoreDir, m.Database); err != nil {
				return err
			}
			_, err := embedded.RemoveStreams(o.StoreDir, m.Database)
			return err
		})
		if err != nil {
			return err
		}
	}
	with.Begin = func() error { return embedded.Restoring.Begin(o.StoreDir, m.Database) }
	if err := os.MkdirAll(filepath.Join(o.StoreDir, "jetstream"), 0o750); err != nil {
		return err
	}
	t := newTarget(o)
	defer t.close()
	if err := t.openStore(embedded.Options{Databases: o.Databases, Changing: m.Database}); err != nil {
		return err
	}
	js, err := jetstream.New(t.Log)
	if err != nil {
		return err
	}
	watched, ended := t.whileOpen(ctx)
	err = backup.Restore(watched, js, dir, m, with)
	if failed := ended(); failed != nil && ctx.Err() == nil {
		return failed
	}
	if errors.Is(err, context.Canceled) {
		return context.Cause(ctx)
	}
	if err == nil {
		err = embedded.Restoring.End(o.StoreDir, m.Database)
	}
	return err
}

// locked calls do while no other process uses a store directory. The embedded server takes
// the lock itself, so do must not start one.
func locked(storeDir string, do func() error) error {
	lock, err := embedded.LockStore(storeDir)
	if err != nil {
		return err
	}
	return errors.Join(do(), lock.Close())
}
