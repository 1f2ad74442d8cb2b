package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/catalog"
	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/schema"
)

// StoredCatalog returns the databases in a store directory that no process uses. It reads
// names and sizes of files, and starts no server: a damaged store has a list, too.
func StoredCatalog(storeDir string) (all []*catalog.Database, err error) {
	if err := checkStore(storeDir); err != nil {
		return nil, err
	}
	err = locked(storeDir, func() error { all, err = storedCatalog(storeDir); return err })
	return all, err
}

func storedCatalog(storeDir string) ([]*catalog.Database, error) {
	found := catalog.Catalog{}
	for _, dir := range embedded.StreamDirs(storeDir) {
		streams, _ := os.ReadDir(dir)
		for _, stream := range streams {
			bytes, err := bytesBelow(filepath.Join(dir, stream.Name()))
			if err != nil {
				return nil, err
			}
			found.Add(catalog.Stream{Name: stream.Name(), Bytes: bytes})
		}
	}
	projections, _ := os.ReadDir(projectionDir(storeDir, ""))
	for _, projection := range projections {
		name, err := schema.ParseDatabaseName(projection.Name())
		if err != nil { // a file about one, or a temporary one
			continue
		}
		db := found.Of(name)
		if db.Projection, err = bytesBelow(projectionDir(storeDir, name)); err != nil {
			return nil, err
		}
		db.Bytes += db.Projection
	}
	interrupted, err := embedded.Interrupted(storeDir)
	for name, why := range interrupted {
		found.Of(name).Interrupted = why.Error()
	}
	return found.Sorted(), err
}

// bytesBelow returns the size of the files in a directory.
func bytesBelow(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}

// DeleteDatabase deletes a database from o.StoreDir, which no process uses, and returns the
// names of its streams. If it is interrupted, lapse refuses the database, and another
// DeleteDatabase deletes what remains. Of the options it uses StoreDir and
// Processor.Logger.
//
// As with RestoreBackup, a file says that it has begun (embedded.Deleting). Whether it may
// be deleted is checked before that, by a server on these files; once begun, nothing is
// checked again, as half a database cannot be read.
func DeleteDatabase(ctx context.Context, o Options, db schema.DatabaseName) (streams []string, err error) {
	o = o.ensureDefaults()
	if err := checkStore(o.StoreDir); err != nil {
		return nil, err
	}
	// Otherwise an earlier call has checked it, and what it left cannot be read any more.
	if !embedded.Deleting.Begun(o.StoreDir, db) {
		if err := o.checkDelete(ctx, db); err != nil {
			return nil, err
		}
	}
	err = locked(o.StoreDir, func() error {
		if err := embedded.Deleting.Begin(o.StoreDir, db); err != nil {
			return err
		}
		if streams, err = embedded.RemoveStreams(o.StoreDir, db); err != nil {
			return err
		}
		projection := projectionDir(o.StoreDir, db)
		// The extent of the projection and leftovers, itself, and the clock of a database
		// other than the first.
		others, err := fs.Glob(os.DirFS(filepath.Dir(projection)), string(db)+".*")
		for _, name := range others {
			err = cmp.Or(err, os.RemoveAll(filepath.Join(filepath.Dir(projection), name)))
		}
		for _, path := range []string{projection, clockFile(o.StoreDir, 1, db)} {
			err = cmp.Or(err, os.RemoveAll(path))
		}
		if err != nil {
			return err
		}
		return embedded.Deleting.End(o.StoreDir, db)
	})
	return streams, err
}

// checkDelete returns an error if a database of a store directory may not be deleted: it is
// not there, a restore of it was interrupted, its streams are damaged, or it has held
// documents. A projection alone, without streams, holds nothing that the log would have.
func (o Options) checkDelete(ctx context.Context, db schema.DatabaseName) error {
	all, err := StoredCatalog(o.StoreDir)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(d *catalog.Database) bool { return d.Name == db })
	if i < 0 {
		return fmt.Errorf("database %s: %w", db, catalog.ErrNone)
	}
	if all[i].Interrupted != "" {
		return errors.New(all[i].Interrupted)
	}
	if len(all[i].Streams) == 0 {
		return nil
	}
	t := newTarget(o)
	defer t.close()
	names := []schema.DatabaseName{db}
	for _, other := range all {
		names = append(names, other.Name)
	}
	slices.Sort(names)
	if err := t.openStore(embedded.Options{Databases: slices.Compact(names)}); err != nil {
		return err
	}
	if err := t.damage(db); err != nil {
		return err
	}
	js, err := jetstream.New(t.Log)
	if err != nil {
		return err
	}
	// The check ends when the server that it asks fails, instead of waiting for a reply.
	watched, ended := t.whileOpen(ctx)
	err = catalog.CheckDelete(watched, js, db)
	return cmp.Or(ended(), err)
}
