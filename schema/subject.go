package schema

import "strings"

// Subjects and stream names of one database.

func (db DatabaseName) prefix() string { return "lapse." + string(db) + "." }

// LogStream names the stream that is the log.
func (db DatabaseName) LogStream() string { return "LAPSE_" + string(db) }

// What the names of consumers of the log begin with that do not count towards the
// limit of clients' consumers.
const (
	// ServerConsumer is for those by which lapse itself reads. Clients can
	// neither make them nor take messages from them.
	ServerConsumer = "lapse_server_"
	// ReaderConsumer is for short-lived ones, which go by themselves when nobody
	// reads: those of export, watch and audit. They have a limit of their own.
	ReaderConsumer = "lapse_reader_"
)

// MutationStream names the stream that takes mutations.
func (db DatabaseName) MutationStream() string { return db.LogStream() + "_MUTATIONS" }

// SnapshotStore is what the names of the object stores start with that each
// hold one snapshot, in front of its sequence.
func (db DatabaseName) SnapshotStore() string { return db.LogStream() + "_SNAPSHOT_" }

// LeaseBucket names the key-value bucket that says who writes.
func (db DatabaseName) LeaseBucket() string { return db.LogStream() + "_LEASE" }

// API is what a request's subject starts with, up to and including the dot.
func (db DatabaseName) API() string { return db.prefix() + "api." }

// Mutations is what a mutation's subject starts with, up to and including the dot.
func (db DatabaseName) Mutations() string { return db.prefix() + "mutations." }

// Events is what an event's subject starts with, up to and including the dot.
func (db DatabaseName) Events() string { return db.prefix() + "events." }

// Append is what the subjects start with on which the log's stream listens,
// up to and including the dot; a secret token follows.
func (db DatabaseName) Append() string { return db.prefix() + "append." }

// EventTokens is the end of an event's subject: its collection and type.
func (e *Event) EventTokens() string { return string(e.Collection) + "." + e.Type.String() }

// SplitEventSubject takes the collection and type tokens off an event's subject.
func SplitEventSubject(subject string) (collection, eventType string, ok bool) {
	end := strings.LastIndexByte(subject, '.')
	if end < 0 {
		return "", "", false
	}
	start := strings.LastIndexByte(subject[:end], '.')
	return subject[start+1 : end], subject[end+1:], true
}
