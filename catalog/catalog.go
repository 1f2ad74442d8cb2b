// Package catalog says which databases a JetStream account has and what belongs to each, and
// deletes one. It connects as an operator.
package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/schema"
)

// Database is what there is of a database. In JSON, as lapse database list --json prints
// it:
//
//	{"database":"main","served":true,"lease":"…","snapshots":2,"streams":[{"stream":"LAPSE_main",…}],"bytes":…}
type Database struct {
	Name        schema.DatabaseName `json:"database"`
	Served      bool                `json:"served"`                // by a process that may write it
	Interrupted string              `json:"interrupted,omitempty"` // why lapse refuses it: a restore or deletion
	Lease       string              `json:"lease,omitempty"`       // id of the process that has it
	Snapshots   int                 `json:"snapshots"`
	Streams     []Stream            `json:"streams"`
	Projection  int64               `json:"projection,omitempty"` // bytes; 0 if it is elsewhere
	Bytes       int64               `json:"bytes"`                // of all
}

// Stream is a stream of a database.
type Stream struct {
	Name     string `json:"stream"`
	Messages uint64 `json:"messages,omitempty"` // 0 if unknown
	Bytes    int64  `json:"bytes"`
}

// Catalog are databases by name. It is filled from JetStream, or from the files of a store
// that no server uses.
type Catalog map[schema.DatabaseName]*Database

// Of returns the entry of a database.
func (c Catalog) Of(name schema.DatabaseName) *Database {
	if c[name] == nil {
		c[name] = &Database{Name: name, Streams: []Stream{}}
	}
	return c[name]
}

// Add adds a stream if it belongs to a database.
func (c Catalog) Add(s Stream) {
	if name, ok := schema.StreamOwner(s.Name); ok {
		db := c.Of(name)
		db.Streams = append(db.Streams, s)
		db.Bytes += s.Bytes
		if name.SnapshotOf(s.Name) > 0 {
			db.Snapshots++
		}
	}
}

// Sorted returns the databases by name.
func (c Catalog) Sorted() (all []*Database) {
	for _, db := range c {
		slices.SortFunc(db.Streams, func(a, b Stream) int { return cmp.Compare(a.Name, b.Name) })
		all = append(all, db)
	}
	slices.SortFunc(all, func(a, b *Database) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// List returns the databases of the account, by name. A user who is not the operator sees
// less, which is an error: a list that is not whole would lead to wrong decisions.
func List(ctx context.Context, js jetstream.JetStream) ([]*Database, error) {
	found := Catalog{}
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		found.Add(Stream{info.Config.Name, info.State.Msgs, int64(info.State.Bytes)})
		db, ok := schema.StreamOwner(info.Config.Name)
		if ok && info.Config.Name == db.LogStream() && !isOperator(info.Config, db) {
			return nil, errNoOperator
		}
		if err := eventlog.Interrupted(info.Config); ok && err != nil {
			found.Of(db).Interrupted = err.Error()
		}
	}
	if err := streams.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, explain("streams", err)
	}
	for _, db := range found {
		var err error
		if db.Served, err = served(ctx, js, db.Name); err == nil {
			db.Lease, err = lease.Holder(ctx, js, db.Name)
		}
		if err != nil {
			return nil, explain("database "+string(db.Name), err)
		}
	}
	return found.Sorted(), nil
}

// errNoOperator is the error for those that lack the rights, to whom NATS may not answer.
var errNoOperator = errors.New("JetStream does not answer to this user, or does not show all of the log: connect as the operator with --nkey FILE; `lapse serve --operator-nkey-out FILE` makes the key")

// isOperator reports whether a log's configuration is shown as it is. The gate shows
// clients another subject than the stream has, so the subject tells who asks.
func isOperator(log jetstream.StreamConfig, db schema.DatabaseName) bool {
	return len(log.Subjects) == 1 && strings.HasPrefix(log.Subjects[0], db.Append())
}

// explain says what an unanswered request means: NATS does not answer what a user may not
// ask.
func explain(what string, err error) error {
	if errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w (%w)", errNoOperator, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Open returns a stream.
func Open(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, explain("stream "+name, err)
	}
	return s, nil
}

// OpenLog returns the log of a database.
func OpenLog(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName) (jetstream.Stream, error) {
	s, err := Open(ctx, js, db.LogStream())
	if err == nil && !isOperator(s.CachedInfo().Config, db) {
		return nil, errNoOperator
	}
	return s, err
}

// served reports whether a lapse serves a database: it waits for messages of one of its
// streams. A process that serves a database has a pull request open at one of them at any
// time, on consumers with names that clients cannot have. It asks NATS and not the
// process: one that hangs still serves.
func served(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName) (served bool, _ error) {
	for _, name := range []string{db.LogStream(), db.MutationStream()} {
		stream, err := Open(ctx, js, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		} else if err != nil {
			return false, err
		}
		all := stream.ListConsumers(ctx)
		for c := range all.Info() {
			served = served || strings.HasPrefix(c.Name, schema.ServerConsumer) && c.NumWaiting > 0
		}
		if err := all.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
			return false, err
		}
	}
	return served, nil
}

// CheckVacant returns an error if a lapse serves the database.
func CheckVacant(ctx context.Context, js jetstream.JetStream, db schema.DatabaseName) error {
	serves, err := served(ctx, js, db)
	if err == nil && serves {
		err = fmt.Errorf("database %s is served: stop every lapse that serves it, and try again", db)
	}
	return err
}
