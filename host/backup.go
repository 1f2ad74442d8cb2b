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

// RestoreBackup restores the database that m says, as backup.Verify has returned it, from the
// backup in dir into o.StoreDir, which no process uses. Of the options it uses StoreDir and
// Processor.Logger.
func RestoreBackup(ctx context.Context, o Options, dir string, m *backup.Manifest, with backup.Options) error {
	o.Databases = []schema.DatabaseName{m.Database}
	if err := o.Check(); err != nil {
		return err
	}
	o = o.ensureDefaults()
	if with.Replace {
		if err := embedded.RemoveStreams(o.StoreDir, m.Database); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(o.StoreDir, "jetstream"), 0o750); err != nil {
		return err
	}
	t := newTarget(o)
	defer t.close()
	if err := t.openStore(false); err != nil {
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
	return err
}
