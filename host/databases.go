package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/schema"
)

// Which databases there are, for --database *, is read from what holds them: the
// directories of the streams, or the list of streams of the server. A name that neither
// knows cannot be meant, so "none" is an error. It is read once, at the start; a database
// that is made later needs a restart, or a name.

// databasesOf returns the sorted databases whose logs are among streams, or an error
// if there is none in where.
func databasesOf(streams []string, where string) (names []schema.DatabaseName, err error) {
	for _, stream := range streams {
		if name, mutations, ok := schema.ParseStream(stream); ok && !mutations {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, optionsErrorf("--database *: there is no database in %s yet: name the ones to create", where)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names, Options{Databases: names}.Check()
}

// storedDatabases returns the databases of an embedded server.
func storedDatabases(storeDir string) ([]schema.DatabaseName, error) {
	var streams []string
	for _, dir := range embedded.StreamDirs(storeDir) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			streams = append(streams, e.Name())
		}
	}
	return databasesOf(streams, storeDir)
}

// listTimeout bounds the wait for the names of the streams.
const listTimeout = 10 * time.Second

// remoteDatabases returns the databases of an external server.
func remoteDatabases(nc *nats.Conn) ([]schema.DatabaseName, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	var streams []string
	list := js.StreamNames(ctx)
	for name := range list.Name() {
		streams = append(streams, name)
	}
	if err := list.Err(); err != nil {
		return nil, optionsErrorf("--database *: JetStream at %s does not list its streams: %v: name the databases", nc.ConnectedUrlRedacted(), err)
	}
	return databasesOf(streams, "the NATS server at "+nc.ConnectedUrlRedacted())
}

// clockFile returns the file that stores the clock of the i-th database. It stores the
// machine's clock, so any database's file will do at a start; the first one's name does not
// depend on which database that is.
func clockFile(storeDir string, i int, name schema.DatabaseName) string {
	if i == 0 {
		return filepath.Join(storeDir, "clock")
	}
	return filepath.Join(storeDir, "clock-"+string(name))
}

// projectionDir returns the directory of a database's projection.
func projectionDir(storeDir string, database schema.DatabaseName) string {
	return filepath.Join(storeDir, "projection", string(database))
}
