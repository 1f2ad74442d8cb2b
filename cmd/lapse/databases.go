package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/schema"
)

// allDatabases stands for every database of a NATS server.
const allDatabases = "*"

// maxDatabases is the limit for one process: clients list streams in pages of 256, and
// the gate may have 2048 subscriptions, of which it needs four for each database.
const maxDatabases = 128

// checkCount returns a usage error for too many databases.
func checkCount(names []schema.DatabaseName) error {
	if len(names) > maxDatabases {
		return usageErrorf("--database: %d databases: serve at most %d in one process", len(names), maxDatabases)
	}
	return nil
}

// parseDatabases reads NAME[,NAME…]; it returns nil for allDatabases.
func parseDatabases(text string) (names []schema.DatabaseName, err error) {
	if text == allDatabases {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		name, err := schema.ParseDatabaseName(one)
		switch {
		case one == allDatabases:
			return nil, usageErrorf("--database %s: use * alone, it stands for all databases", text)
		case one == "" && text != "":
			return nil, usageErrorf("--database %s: a name is missing: use NAME,NAME", text)
		case err != nil:
			return nil, usageErrorf("--database: %v", err)
		case slices.Contains(names, name):
			return nil, usageErrorf("--database %s: %s is there twice", text, name)
		}
		names = append(names, name)
	}
	return names, checkCount(names)
}

// databasesOf returns the sorted databases whose logs are among streams, or a usage error
// if there is none in where.
func databasesOf(streams []string, where string) (names []schema.DatabaseName, err error) {
	for _, stream := range streams {
		if name, mutations, ok := schema.ParseStream(stream); ok && !mutations {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, usageErrorf("--database *: there is no database in %s yet: name the ones to create", where)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names, checkCount(names)
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
		return nil, usageErrorf("--database *: JetStream at %s does not list its streams: %v: name the databases", nc.ConnectedUrlRedacted(), err)
	}
	return databasesOf(streams, "the NATS server at "+nc.ConnectedUrlRedacted())
}

// clockFile returns the file that stores the clock of the i-th database. The content is
// about the machine, so it does not matter which database is the first.
func clockFile(storeDir string, i int, name schema.DatabaseName) string {
	if i == 0 {
		return filepath.Join(storeDir, "clock")
	}
	return filepath.Join(storeDir, "clock-"+string(name))
}
