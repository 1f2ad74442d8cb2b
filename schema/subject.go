package schema

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Subjects and stream names of one database. For database main:
//
//	LAPSE_main               the log: lapse.main.append.<secret>.>, shown as lapse.main.events.>
//	LAPSE_main_MUTATIONS     lapse.main.mutations.>
//	KV_LAPSE_main_LEASE      the writer's lease
//	OBJ_LAPSE_main_SNAPSHOT_4711  a snapshot at sequence 4711
//	lapse.main.api.>         requests
//
// A database name has no underscore, so what follows one is never part of it: no stream of
// one database can have the name of another's.

// prefix returns the first tokens of all subjects of the database.
func (db DatabaseName) prefix() string { return "lapse." + string(db) + "." }

// LogStream names the log's stream.
func (db DatabaseName) LogStream() string { return "LAPSE_" + string(db) }

// Name prefixes of consumers of the log that do not count towards the limit of
// clients' consumers.
const (
	// ServerConsumer is for lapse's own consumers. Clients can neither create them nor
	// read from them.
	ServerConsumer = "lapse_server_"
	// ReaderConsumer is for the consumers of export, watch and audit, which NATS removes
	// when they are idle. They have a limit of their own.
	ReaderConsumer = "lapse_reader_"
)

// ConsumerAccount is the key of a consumer's metadata with the account that created it, by
// imports. No other account can edit or delete it.
const ConsumerAccount = "lapse.account"

// ConsumerTries is the key of the metadata of a durable's consumer with the tries of its
// first event: {"seq":7,"failed":2,"running":true}.
const ConsumerTries = "lapse.tries"

// MutationStream names the mutations stream.
func (db DatabaseName) MutationStream() string { return db.LogStream() + mutationSuffix }

const mutationSuffix = "_MUTATIONS"

// ParseStream is the inverse of LogStream and MutationStream. ok is false for the name of
// any other stream.
func ParseStream(name string) (db DatabaseName, mutations, ok bool) {
	text, ok := strings.CutPrefix(name, DatabaseName("").LogStream())
	text, mutations = strings.CutSuffix(text, mutationSuffix)
	db, err := ParseDatabaseName(text)
	return db, mutations, ok && err == nil
}

// SnapshotStore returns the name prefix of the object stores, one for each snapshot; the
// snapshot's sequence follows.
func (db DatabaseName) SnapshotStore() string { return db.LogStream() + "_SNAPSHOT_" }

// SnapshotStream names the stream of the object store of the snapshot at seq.
func (db DatabaseName) SnapshotStream(seq uint64) string {
	return "OBJ_" + db.SnapshotStore() + strconv.FormatUint(seq, 10)
}

// SnapshotOf is the inverse of SnapshotStream. It returns 0 for the name of any other stream.
func (db DatabaseName) SnapshotOf(stream string) uint64 {
	seq, _ := strconv.ParseUint(strings.TrimPrefix(stream, "OBJ_"+db.SnapshotStore()), 10, 64)
	if db.SnapshotStream(seq) != stream {
		return 0
	}
	return seq
}

// LeaseBucket names the key-value bucket of the writer's lease.
func (db DatabaseName) LeaseBucket() string { return db.LogStream() + "_LEASE" }

// LeaseStream names the stream of LeaseBucket.
func (db DatabaseName) LeaseStream() string { return "KV_" + db.LeaseBucket() }

// StreamOwner returns the database to which a stream belongs: its log, mutations, lease or
// one of its snapshots. ok is false for any other stream.
func StreamOwner(name string) (db DatabaseName, ok bool) {
	_, text, _ := strings.Cut(name, DatabaseName("").LogStream())
	text, _, _ = strings.Cut(text, "_")
	db, err := ParseDatabaseName(text)
	return db, err == nil && (slices.Contains([]string{db.LogStream(), db.MutationStream(), db.LeaseStream()}, name) || db.SnapshotOf(name) > 0)
}

// Owns reports whether a stream belongs to the database, as StreamOwner says.
func (db DatabaseName) Owns(stream string) bool {
	owner, ok := StreamOwner(stream)
	return ok && owner == db
}

// API returns the subject prefix of requests, including the dot.
func (db DatabaseName) API() string { return db.prefix() + "api." }

// TestSubjects begin the subjects of requests that move the clock of a database.
func (db DatabaseName) TestSubjects() string { return db.prefix() + "test." }

// MoveOperation follows API in the subject of the request that has another process write
// the database. Only operators may send it: it goes to the account of the streams, and is
// none of Operations.
const MoveOperation = "move"

// Mutations returns the subject prefix of mutations, including the dot.
func (db DatabaseName) Mutations() string { return db.prefix() + "mutations." }

// Events returns the subject prefix of events, including the dot.
func (db DatabaseName) Events() string { return db.prefix() + "events." }

// Append returns the prefix of the subjects of the log's stream, including the dot; a
// secret token follows.
func (db DatabaseName) Append() string { return db.prefix() + "append." }

// EventTokens returns the end of an event's subject: its collection and type.
func (e *Event) EventTokens() string { return string(e.Collection) + "." + e.Type.String() }

// SplitEventSubject returns the collection and type tokens of an event's subject. For
// lapse.main.events.orders.DocumentCreated these are orders and DocumentCreated.
func SplitEventSubject(subject string) (collection, eventType string, ok bool) {
	end := strings.LastIndexByte(subject, '.')
	if end < 0 {
		return "", "", false
	}
	start := strings.LastIndexByte(subject[:end], '.')
	return subject[start+1 : end], subject[end+1:], true
}

// InboxPrefix starts the reply subjects of clients that choose no prefix of their own.
const InboxPrefix = "_INBOX."

// Auditor names the users who read the log and change nothing, and AuditorInboxes starts
// their reply subjects. NATS permissions cannot say whose a consumer is, so auditors
// delete theirs by a request of the gate's own: its subject is that of JetStream's
// CONSUMER.DELETE with Auditor as one more token.
const (
	Auditor        = "auditor"
	AuditorInboxes = InboxPrefix + Auditor + "."
)

// notInboxes are first tokens of subjects that are not a client's inbox: those of lapse,
// and those on which lapse and NATS themselves receive replies. Subjects that begin with
// $ belong to NATS and its streams.
var notInboxes = []string{"lapse", "_PROCESSOR", "_BULK", "_SERVICE", "_GATE", "_OPERATOR", "_CLIENTS", "_R_", "_GR_"}

// IsInbox reports whether a reply may be published to a subject that a client names.
// NATS and lapse publish replies with rights that the client lacks, so a reply must
// not reach a stream of lapse, a request of lapse or the JetStream API. An inbox has
// at least two tokens, none of them empty or a wildcard.
func IsInbox(subject string) bool {
	if strings.HasPrefix(subject, "$") {
		return false
	}
	n := 0
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || token == "*" || token == ">" || strings.ContainsAny(token, " \t\r\n\f\x00") || n == 0 && slices.Contains(notInboxes, token) {
			return false
		}
		n++
	}
	return n > 1
}

// operatorInboxes starts the reply subjects of operators.
const operatorInboxes = "_OPERATOR."

// IsOperatorReply reports whether the answer to an operator may be published to a reply
// subject.
func IsOperatorReply(subject string) bool {
	return IsInbox(strings.TrimPrefix(subject, operatorInboxes))
}

// serviceReply begins the reply subjects that NATS gives to requests from another account,
// which reach lapse by a service import. It refuses them from clients.
const serviceReply = "_R_."

// IsReply reports whether the reply subject of a message is one that lapse publishes to:
// an inbox, or what NATS puts in its place for an importing account. Within a body, where
// clients write what they like, only IsInbox counts.
func IsReply(subject string) bool {
	return IsInbox(strings.TrimPrefix(subject, serviceReply))
}

// RequestInfo is the header in which NATS says where a request from another account comes
// from. On other messages it is what their sender wrote.
const RequestInfo = "Nats-Request-Info"

// AccountOf returns the account that a message comes from by service import, given its
// reply subject and its header RequestInfo; "" for one from the account of its listener, or
// where NATS did not say it.
func AccountOf(reply, info string) string {
	if !strings.HasPrefix(reply, serviceReply) {
		return ""
	}
	var from struct {
		Account string `json:"acc"`
	}
	_ = json.Unmarshal([]byte(info), &from) // else it names none
	return from.Account
}

// Covers reports whether a subject is one of those that a subscription to pattern gets.
// JetStream may show a listener another subject than the one that a message came by: what
// does not fit was not held to anybody's permissions. For example lapse.*.api.> covers
// lapse.main.api.status, and not lapse.main.api.
func Covers(pattern, subject string) bool {
	for {
		want, patternRest, more := strings.Cut(pattern, ".")
		if want == ">" {
			return subject != ""
		}
		got, subjectRest, longer := strings.Cut(subject, ".")
		if want != "*" && want != got || got == "" || more != longer {
			return false
		}
		if !more {
			return true
		}
		pattern, subject = patternRest, subjectRest
	}
}
