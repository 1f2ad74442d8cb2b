package gate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lapsedb/lapse/schema"
)

// Who may use which subject, in one place. The embedded server's accounts, nats.conf, the
// imports of `lapse config account` and the table in the manual are made from these lists,
// so they cannot disagree. test/rights has the same from the other side, as what each user
// must be able to do and must not.
//
// A user may publish what mayPublish and operations give his role, less mayNotPublish;
// likewise for subscriptions. NATS applies a denial over every permission.

// Role is who has permissions on subjects: users of NATS, and accounts that import. A set
// of roles is their sum.
type Role uint16

// The users of nats.conf, whose comments say what each is for. The embedded server has
// some of them.
const (
	Processor Role = 1 << iota
	Bulk
	GateLog
	Operator
	Mover // may have another process write a database, as the operator of nats.conf
	Service
	GateClients
	Client
	Producer
	Auditor
	// Anonymous is who connects to the embedded server without credentials.
	Anonymous
	// ImportClients is an account of an application, as far as it imports services from
	// the account of the clients, and ImportStreams from that of the streams.
	ImportClients
	ImportStreams
	// Tester serves the requests that move the clock of a test's database.
	Tester
)

// passed are the roles for requests that a gate passes on, also for other accounts.
const passed = GateLog | ImportClients

// AnyDatabase stands for all databases: NATS's wildcard takes the place of what has the
// name of one. It is for roles that may use all streams of an account alike, not for
// Processor and Bulk.
const AnyDatabase schema.DatabaseName = "*"

// permission is what some roles may do, or may not. The subjects have {db} in the place of
// the name of a database, {log} and {mutations} of its streams, {bucket} of its lease and
// {lease} of the stream of that.
type permission struct {
	by       Role
	subjects []string
	why      string // a comment for configuration files; "" for none
}

// mayPublish is what roles may publish to, besides operations. A comment holds until the
// next one.
var mayPublish = []permission{
	{Service | GateClients, []string{"*.>"}, ""}, // replies
	{Processor, []string{"lapse.{db}.append.>"}, ""},
	{Auditor, []string{
		"lapse.{db}.api.document.get.>", "lapse.{db}.api.collection.get.*", "lapse.{db}.api.collection.list",
		"lapse.{db}.api.query.*", "lapse.{db}.api.history.>", "lapse.{db}.api.status", "lapse.{db}.api.forecast.*",
	}, ""},
	{Processor | Auditor, []string{"$JS.API.INFO"}, ""},
	{Processor | GateLog, []string{"$JS.API.STREAM.INFO.{mutations}"}, ""},
	{Processor, []string{
		"$JS.API.STREAM.CREATE.{log}", "$JS.API.STREAM.CREATE.{mutations}", "$JS.API.STREAM.CREATE.{lease}",
		"$JS.API.STREAM.INFO.{lease}",
	}, ""},
	{Bulk, []string{"$JS.API.CONSUMER.CREATE.{mutations}.>", "$JS.API.CONSUMER.MSG.NEXT.{mutations}.*", "$JS.API.CONSUMER.DELETE.{mutations}.*"}, ""},
	{Operator, []string{"$JS.API.>", "$JS.SNAPSHOT.ACK.>", "$JS.SNAPSHOT.RESTORE.>"}, ""},

	{Client | ImportClients, []string{"lapse.{db}.api.>"}, "Requests and mutations."},
	{Client | Producer | ImportClients, []string{"lapse.{db}.mutations.>"}, ""},
	// Nobody listens to requests, mutations and events of a database that is not served,
	// so NATS answers at once. Denied, their sender would wait.
	{Anonymous, []string{"lapse.>"}, ""},
	{Client | Anonymous, []string{"$SRV.>"}, "Which processes there are: lapse status --all"},
	{ImportClients, []string{"$SRV.INFO.lapse"}, "Which processes there are: lapse status --all"},
	{Client | Anonymous | passed, []string{"$JS.ACK.{log}.>", "$JS.FC.{log}.>"}, "Acknowledgements and flow control."},
	{Client | Anonymous, []string{"$JS.API.>", "$KV.>", "$O.>"}, "The gate answers these, also those that are not permitted."},
	{Client, []string{"lapse.{db}.events.>"}, ""},

	{Processor, []string{"$JS.API.STREAM.PURGE.{log}", "$JS.API.STREAM.PURGE.{mutations}"}, "Retention."},
	{Processor, []string{
		"$KV.{bucket}.writer", "$JS.API.DIRECT.GET.{lease}.>",
		"$JS.API.CONSUMER.CREATE.{lease}.>", "$JS.API.CONSUMER.DELETE.{lease}.>",
	}, "The lease."},
	{Processor, []string{"_OPERATOR.>"}, "Answers to lapse move."},
	{Bulk, []string{
		"$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.DELETE.*", "$JS.API.DIRECT.GET.*.>",
		"$JS.API.CONSUMER.CREATE.*.>", "$JS.API.CONSUMER.DELETE.*.*", "$O.*.C.*", "$O.*.M.*",
	}, "Each snapshot is an object store of its own, with its sequence in the name. NATS has\nno wildcard for a part of a name."},
	{Bulk, []string{"$JS.API.STREAM.PURGE.*"}, "A snapshot that failed half-way."},
	{Bulk, []string{"$JS.FC.*.>"}, "Without it a reader of a large snapshot is sent 2 MiB and no more."},
	{Mover, []string{"lapse.{db}.api.move"}, "lapse move: has another process write the database."},
}

// reserved are the subjects of lapse and of NATS: no inbox begins with them.
var reserved = []string{
	"lapse.>", "$JS.>", "$KV.>", "$O.>", "$SYS.>", "$NRG.>",
	"_PROCESSOR.>", "_BULK.>", "_GATE.>", "_SERVICE.>", "_OPERATOR.>", "_CLIENTS.>",
}

// mayNotPublish are exceptions from mayPublish.
var mayNotPublish = []permission{
	{Anonymous, []string{"lapse.*.append.>"}, ""},
	{Service | GateClients, reserved, ""},
	{GateClients, []string{"$SRV.>"}, ""},
	{Bulk, []string{
		"$JS.API.STREAM.CREATE.{log}", "$JS.API.STREAM.CREATE.{mutations}", "$JS.API.STREAM.CREATE.{lease}",
		"$JS.API.STREAM.INFO.{log}", "$JS.API.STREAM.INFO.{mutations}", "$JS.API.STREAM.INFO.{lease}",
		"$JS.API.STREAM.DELETE.{log}", "$JS.API.STREAM.DELETE.{mutations}", "$JS.API.STREAM.DELETE.{lease}",
		"$JS.API.STREAM.PURGE.{log}", "$JS.API.STREAM.PURGE.{mutations}", "$JS.API.STREAM.PURGE.{lease}",
		"$JS.API.*.*.{lease}.>", "$JS.FC.{log}.>", "$JS.FC.{mutations}.>", "$JS.FC.{lease}.>",
	}, ""},
}

// maySubscribe is what roles may subscribe to.
var maySubscribe = []permission{
	{Processor, []string{
		"_PROCESSOR.>", "$KV.{bucket}.writer", "lapse.{db}.api.move",
		"$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.{log}",
	}, ""},
	{Bulk, []string{"_BULK.>"}, ""},
	{GateLog, []string{"_GATE.>"}, ""},
	{Operator, []string{"_OPERATOR.>"}, ""},
	{Service, []string{"lapse.{db}.api.>", "$SRV.>"}, ""},
	{Tester, []string{"lapse.{db}.test.>"}, ""},
	{GateClients, []string{"lapse.{db}.events.>", "$JS.API.>", "$JS.ACK.>", "$JS.FC.>", "$KV.>", "$O.>"}, ""},
	{Client, []string{"_INBOX.>"}, ""},
	{Producer, []string{"_INBOX.producer.>"}, ""},
	{Auditor, []string{"_INBOX.auditor.>"}, ""},
	{Anonymous, []string{">"}, ""},
}

// mayNotSubscribe are exceptions from maySubscribe: requests and mutations of others pass
// through the account of the clients, too.
var mayNotSubscribe = []permission{
	{Client, []string{"_INBOX.producer.>", "_INBOX.auditor.>"}, ""},
	{Anonymous, reserved, ""},
	{Anonymous, []string{"$SRV.>", "_R_.>"}, ""},
}

// allPublish returns the operations and mayPublish.
func allPublish() (all []permission) {
	for _, o := range operations {
		all = append(all, permission{o.by, []string{strings.Replace(o.subject, "*", "{log}", 1)}, ""})
	}
	return append(all, mayPublish...)
}

// names returns what fills in the subjects of a permission.
func names(db schema.DatabaseName) *strings.Replacer {
	log, mutations, bucket, lease := db.LogStream(), db.MutationStream(), db.LeaseBucket(), "KV_"+db.LeaseBucket()
	if db == AnyDatabase {
		log, mutations, bucket, lease = "*", "*", "*", "*"
	}
	return strings.NewReplacer("{db}", string(db), "{log}", log, "{mutations}", mutations, "{bucket}", bucket, "{lease}", lease)
}

// of returns the subjects of permissions that a role has, each once.
func of(all []permission, by Role, dbs []schema.DatabaseName) (subjects []string) {
	for _, p := range all {
		if p.by&by == 0 {
			continue
		}
		for _, subject := range p.subjects {
			for _, db := range dbs {
				if named := names(db).Replace(subject); !slices.Contains(subjects, named) {
					subjects = append(subjects, named)
				}
			}
		}
	}
	return subjects
}

// Subjects returns what a role may publish to. Of an account it is what that may import.
func (r Role) Subjects(dbs ...schema.DatabaseName) []string { return of(allPublish(), r, dbs) }

// Permissions returns what users with a role may do, as a map in the syntax of a
// configuration file of NATS.
func (r Role) Permissions(dbs ...schema.DatabaseName) string {
	list := func(all []permission) string {
		var quoted []string
		for _, subject := range of(all, r, dbs) {
			quoted = append(quoted, fmt.Sprintf("%q", subject))
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	return fmt.Sprintf("{ publish: { allow: %s, deny: %s }, subscribe: { allow: %s, deny: %s } }",
		list(allPublish()), list(mayNotPublish), list(maySubscribe), list(mayNotSubscribe))
}
