package eventlog

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
)

// A restored log continues another one, with its events and sequences, and must not be
// taken for it: a process that still has appends in flight to the old one, or knows of
// later events of it, would else write into the new one or find it damaged. So a restored
// log has another secret prefix, and thereby another identity; its metadata names the
// identities that it continues, so that projections and snapshots up to its end stay valid.
//
// The marks in the metadata hold across kills and processes: while lapse-restoring or
// lapse-deleting is set, no lapse serves the stream.

// Metadata of a log's stream.
const (
	metaRestoring = "lapse-restoring" // set until all that belongs to a restored log is there
	metaDeleting  = "lapse-deleting"  // set while the database is deleted
	metaWas       = "lapse-was"       // identities of the logs that it continues, by commas
)

// Restored returns the configuration with which a copy of a log begins. It is another log:
// who appends to the old one, or knows more of it, cannot take it for that. lapse refuses it
// until Complete.
func Restored(config jetstream.StreamConfig, db schema.DatabaseName) jetstream.StreamConfig {
	was := strings.Join(Identities(config), ",")
	fresh := LogConfig(db, db.Append()+rand.Text()+".")
	config.Subjects, config.SubjectTransform = fresh.Subjects, fresh.SubjectTransform
	return marked(Unrestored(config), metaWas, was)
}

// Unrestored returns the configuration of a stream without which lapse cannot serve what is
// restored: lapse refuses it.
func Unrestored(config jetstream.StreamConfig) jetstream.StreamConfig {
	return marked(config, metaRestoring, "1")
}

// marked returns config with a key in a copy of its metadata.
func marked(config jetstream.StreamConfig, key, value string) jetstream.StreamConfig {
	if config.Metadata = maps.Clone(config.Metadata); config.Metadata == nil {
		config.Metadata = make(map[string]string)
	}
	config.Metadata[key] = value
	return config
}

// Complete returns the configuration with which lapse serves a restored log.
func Complete(config jetstream.StreamConfig) jetstream.StreamConfig {
	config.Metadata = maps.Clone(config.Metadata)
	delete(config.Metadata, metaRestoring)
	return config
}

// Deleted returns the configuration of a log whose database is being deleted: lapse refuses it.
func Deleted(config jetstream.StreamConfig) jetstream.StreamConfig {
	return marked(config, metaDeleting, "1")
}

// Deleting reports whether the database of the log is being deleted.
func Deleting(config jetstream.StreamConfig) bool { return config.Metadata[metaDeleting] != "" }

// Interrupted returns an error if a restore or deletion of a stream's database was interrupted.
func Interrupted(config jetstream.StreamConfig) error {
	switch {
	case Deleting(config):
		return fmt.Errorf("stream %s belongs to a database whose deletion was interrupted: run `lapse database delete` again", config.Name)
	case config.Metadata[metaRestoring] != "":
		return fmt.Errorf("stream %s belongs to a restore that was interrupted: run `lapse restore` again", config.Name)
	}
	return nil
}

// Identity returns Log.Identity of the log with this configuration.
func Identity(config jetstream.StreamConfig) string {
	return identityOf(strings.TrimSuffix(config.Subjects[0], ">"))
}

// Continues reports whether a projection or snapshot of the log with that identity, as far
// as its events are in this one, belongs to this one.
func (l *Log) Continues(identity string) bool { return slices.Contains(l.identities, identity) }

// Identities returns that of the log with this configuration and of those that it continues.
func Identities(config jetstream.StreamConfig) (all []string) {
	all = []string{Identity(config)}
	if was := config.Metadata[metaWas]; was != "" {
		all = append(all, strings.Split(was, ",")...)
	}
	return all
}
