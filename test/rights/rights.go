// Package rights has who may use which subject, independent of what grants it: tests check
// the users of the embedded server, of nats.conf and of JWT accounts against it.
package rights

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// Users with common rights.
var (
	clients  = []string{"client", "anonymous"}
	readers  = []string{"client", "anonymous", "auditor"}
	wholeAPI = []string{"operator", "client", "anonymous"} // all of JetStream; the gate refuses clients most of it
	pullers  = []string{"bulk", "gate-log", "operator", "client", "anonymous", "auditor"}
)

// mayPublish lists the users that may publish to each subject. NATS refuses the others.
// Clients are client, of nats.conf, and anonymous, of the embedded server. The gate receives
// all that they publish to JetStream, $KV, $O and event subjects.
var mayPublish = map[string][]string{
	// The log.
	"lapse.main.append.secret.orders.DocumentCreated": {"processor"},
	"lapse.main.append.guess.orders.DocumentCreated":  {"processor"},
	"lapse.main.events.orders.DocumentCreated":        clients,
	"$KV.LAPSE_main_LEASE.writer":                     {"processor", "client", "anonymous"},
	"$KV.LAPSE_main_LEASE.process.a":                  {"processor", "client", "anonymous"},
	"$KV.LAPSE_main_LEASE.other":                      clients,
	"$KV.OTHER.writer":                                clients,

	// Mutations and requests.
	"lapse.main.mutations.document.upsert.orders.a": {"client", "anonymous", "producer"},
	"lapse.main.mutations.collection.create.orders": {"client", "anonymous", "producer"},
	"lapse.main.api.document.get.orders.a":          readers,
	"lapse.main.api.collection.get.orders":          readers,
	"lapse.main.api.collection.list":                readers,
	"lapse.main.api.query.orders":                   readers,
	"lapse.main.api.history.orders.a":               readers,
	"lapse.main.api.status":                         readers,
	"lapse.main.api.forecast.orders":                readers,
	"lapse.main.api.document.upsert.orders.a":       clients,
	"lapse.main.api.document.delete.orders.a":       clients,
	"lapse.main.api.collection.delete.orders":       clients,
	"lapse.main.api.batch.orders":                   clients,
	"lapse.main.api.move":                           wholeAPI, // nobody hears the client
	"$SRV.PING":                                     {"service", "client", "anonymous"},
	"$SRV.REPLY.x":                                  {"service", "client", "anonymous"},

	// Another database.
	"lapse.other.mutations.document.upsert.orders.a":   {"anonymous"}, // nobody listens
	"lapse.other.api.document.get.orders.a":            {"anonymous"}, // nobody listens
	"lapse.other.append.secret.orders.DocumentCreated": nil,

	// Streams.
	"$JS.API.INFO":                                    {"processor", "operator", "client", "anonymous", "auditor"},
	"$JS.API.STREAM.NAMES":                            {"processor", "bulk", "operator", "client", "anonymous", "auditor"},
	"$JS.API.STREAM.LIST":                             {"operator", "client", "anonymous", "auditor"},
	"$JS.API.STREAM.CREATE.LAPSE_main":                {"processor", "operator", "client", "anonymous"},
	"$JS.API.STREAM.CREATE.LAPSE_main_MUTATIONS":      {"processor", "operator", "client", "anonymous"},
	"$JS.API.STREAM.CREATE.KV_LAPSE_main_LEASE":       {"processor", "operator", "client", "anonymous"},
	"$JS.API.STREAM.CREATE.OBJ_LAPSE_main_SNAPSHOT_7": {"bulk", "operator", "client", "anonymous"},
	"$JS.API.STREAM.INFO.LAPSE_main":                  {"processor", "operator", "client", "anonymous", "auditor", "gate-log"},
	"$JS.API.STREAM.INFO.LAPSE_main_MUTATIONS":        {"processor", "operator", "client", "anonymous", "gate-log"},
	"$JS.API.STREAM.INFO.KV_LAPSE_main_LEASE":         {"processor", "operator", "client", "anonymous"},
	"$JS.API.STREAM.INFO.OBJ_LAPSE_main_SNAPSHOT_7":   {"bulk", "operator", "client", "anonymous"},
	"$JS.API.STREAM.UPDATE.LAPSE_main":                wholeAPI,
	"$JS.API.STREAM.UPDATE.LAPSE_main_MUTATIONS":      wholeAPI,
	"$JS.API.STREAM.UPDATE.KV_LAPSE_main_LEASE":       wholeAPI,
	"$JS.API.STREAM.UPDATE.OBJ_LAPSE_main_SNAPSHOT_7": wholeAPI,
	"$JS.API.STREAM.DELETE.LAPSE_main":                wholeAPI,
	"$JS.API.STREAM.DELETE.LAPSE_main_MUTATIONS":      wholeAPI,
	"$JS.API.STREAM.DELETE.KV_LAPSE_main_LEASE":       wholeAPI,
	"$JS.API.STREAM.DELETE.OBJ_LAPSE_main_SNAPSHOT_7": {"bulk", "operator", "client", "anonymous"},
	"$JS.API.STREAM.PURGE.LAPSE_main":                 {"processor", "operator", "client", "anonymous"},
	"$JS.API.STREAM.PURGE.LAPSE_main_MUTATIONS":       {"processor", "operator", "client", "anonymous"},
	"$JS.API.STREAM.PURGE.KV_LAPSE_main_LEASE":        wholeAPI,
	"$JS.API.STREAM.PURGE.OBJ_LAPSE_main_SNAPSHOT_7":  {"bulk", "operator", "client", "anonymous"},
	"$JS.API.STREAM.MSG.GET.LAPSE_main":               {"processor", "operator", "client", "anonymous", "auditor", "gate-log"},
	"$JS.API.STREAM.MSG.GET.KV_LAPSE_main_LEASE":      wholeAPI,
	"$JS.API.STREAM.MSG.DELETE.LAPSE_main":            wholeAPI,
	"$JS.API.STREAM.SNAPSHOT.LAPSE_main":              wholeAPI,
	"$JS.API.STREAM.RESTORE.LAPSE_main":               wholeAPI,
	"$JS.API.STREAM.PEER.REMOVE.LAPSE_main":           wholeAPI,
	"$JS.API.STREAM.LEADER.STEPDOWN.LAPSE_main":       wholeAPI,
	"$JS.API.DIRECT.GET.LAPSE_main":                   {"operator", "client", "anonymous", "gate-log"},
	"$JS.API.DIRECT.GET.KV_LAPSE_main_LEASE.$KV.x":    {"processor", "operator", "client", "anonymous"},
	"$JS.API.META.LEADER.STEPDOWN":                    wholeAPI, // answered in the system account only
	"$JS.API.SERVER.REMOVE":                           wholeAPI, // likewise
	"$O.LAPSE_main_SNAPSHOT_7.C.x":                    {"bulk", "client", "anonymous"},
	"$O.LAPSE_main_SNAPSHOT_7.M.x":                    {"bulk", "client", "anonymous"},
	"$JS.SNAPSHOT.ACK.LAPSE_main.x":                   {"operator"},
	"$JS.SNAPSHOT.RESTORE.LAPSE_main.x":               {"operator"},

	// Consumers.
	"$JS.API.CONSUMER.CREATE.LAPSE_main":                    {"gate-log", "operator", "client", "anonymous"},
	"$JS.API.CONSUMER.CREATE.LAPSE_main.x":                  pullers,
	"$JS.API.CONSUMER.CREATE.LAPSE_main.x.lapse.main.>":     pullers,
	"$JS.API.CONSUMER.DURABLE.CREATE.LAPSE_main.x":          {"gate-log", "operator", "client", "anonymous"},
	"$JS.API.CONSUMER.INFO.LAPSE_main.x":                    {"gate-log", "operator", "client", "anonymous", "auditor"},
	"$JS.API.CONSUMER.LIST.LAPSE_main":                      {"gate-log", "operator", "client", "anonymous"},
	"$JS.API.CONSUMER.NAMES.LAPSE_main":                     {"gate-log", "operator", "client", "anonymous"},
	"$JS.API.CONSUMER.DELETE.LAPSE_main.x":                  {"bulk", "gate-log", "operator", "client", "anonymous"},
	"$JS.API.CONSUMER.DELETE.LAPSE_main.x.auditor":          {"operator", "client", "anonymous", "auditor"},
	"$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.x":                pullers,
	"$JS.API.CONSUMER.PAUSE.LAPSE_main.x":                   {"operator", "client", "anonymous", "gate-log"},
	"$JS.API.CONSUMER.RESET.LAPSE_main.x":                   {"operator", "client", "anonymous", "gate-log"},
	"$JS.API.CONSUMER.UNPIN.LAPSE_main.x":                   {"operator", "client", "anonymous", "gate-log"},
	"$JS.API.CONSUMER.LEADER.STEPDOWN.LAPSE_main.x":         wholeAPI,
	"$JS.ACK.LAPSE_main.x.1.1.1.1.1":                        {"gate-log", "client", "anonymous"},
	"$JS.FC.LAPSE_main.x.y":                                 {"gate-log", "client", "anonymous"},
	"$JS.API.CONSUMER.CREATE.LAPSE_main_MUTATIONS.x":        {"bulk", "operator", "client", "anonymous"},
	"$JS.API.CONSUMER.DELETE.LAPSE_main_MUTATIONS.x":        {"bulk", "operator", "client", "anonymous"},
	"$JS.API.CONSUMER.MSG.NEXT.LAPSE_main_MUTATIONS.x":      {"bulk", "operator", "client", "anonymous"},
	"$JS.ACK.LAPSE_main_MUTATIONS.x.1.1.1.1.1":              nil,
	"$JS.API.CONSUMER.CREATE.KV_LAPSE_main_LEASE.x":         {"processor", "operator", "client", "anonymous"},
	"$JS.API.CONSUMER.MSG.NEXT.OBJ_LAPSE_main_SNAPSHOT_7.x": wholeAPI,

	// Inboxes.
	"_INBOX.x":          {"service", "gate-clients"},
	"_INBOX.auditor.x":  {"service", "gate-clients"},
	"_INBOX.producer.x": {"service", "gate-clients"},
	"_MINE.x":           {"service", "gate-clients"},
	"_PROCESSOR.x":      nil,
	"_CLIENTS._MINE.x":  nil,
	"_BULK.x":           nil,
	"_GATE.x":           nil,
	"_SERVICE.x":        nil,
	"_OPERATOR.x":       {"processor"},

	// The servers, and all other subjects.
	"$SYS.REQ.SERVER.PING":        nil,
	"$SYS.REQ.USER.INFO":          nil,
	"$SYS.REQ.ACCOUNT.LAPSE.INFO": nil,
	"_R_.x":                       {"service", "gate-clients"},
	"$SYS.ACCOUNT.LAPSE.x":        nil,
	"$NRG.V.x":                    nil,
	"anything":                    nil,
	"lapse.main.anything":         {"anonymous"}, // nobody listens
	"lapse.main.api":              {"anonymous"}, // nobody listens
	"$JS.EVENT.ADVISORY.API":      nil,
}

// maySubscribe is mayPublish for subscriptions.
var maySubscribe = map[string][]string{
	// Anonymous sees nothing of others by these, see TestInboxesArePrivate.
	">": {"anonymous"}, "*": {"anonymous"}, "*.>": {"anonymous"},
	"lapse.>": nil, "lapse.main.>": nil, "lapse.*.api.>": nil, "$JS.>": nil, "$JS.API.>": {"gate-clients"}, "$SYS.>": nil, "$KV.>": {"gate-clients"}, "$O.>": {"gate-clients"},
	"lapse.main.append.>":            nil,
	"lapse.main.events.>":            {"gate-clients"},
	"lapse.main.mutations.>":         nil,
	"lapse.main.api.>":               {"service"},
	"lapse.main.api.status":          {"service"},
	"lapse.other.api.>":              nil,
	"lapse.main.api.move":            {"processor", "service"},
	"$KV.LAPSE_main_LEASE.writer":    {"processor", "gate-clients"},
	"$KV.LAPSE_main_LEASE.process.*": {"processor", "gate-clients"},
	"$SRV.>":                         {"service"},
	"$SRV.PING":                      {"service"},
	"$JS.API.CONSUMER.>":             {"gate-clients"},
	"$JS.API.STREAM.NAMES":           {"gate-clients"},
	"$JS.API.STREAM.>":               {"gate-clients"},
	"$JS.ACK.>":                      {"gate-clients"},
	"$JS.FC.>":                       {"gate-clients"},
	"$JS.SNAPSHOT.>":                 nil,
	"$JS.EVENT.>":                    nil,
	"$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.LAPSE_main": {"processor"},
	"_INBOX.>":          {"client", "anonymous"},
	"_INBOX.x":          {"client", "anonymous"},
	"_INBOX.producer.>": {"producer", "anonymous"},
	"_INBOX.auditor.>":  {"auditor", "anonymous"},
	"_PROCESSOR.>":      {"processor"},
	"_BULK.>":           {"bulk"},
	"_GATE.>":           {"gate-log"},
	"_SERVICE.>":        nil,
	"_OPERATOR.>":       {"operator"},
	"_R_.>":             nil,
	"_GR_.>":            {"anonymous"},
}

// Check fails the test unless a user may use exactly the subjects listed for it. What it
// publishes is empty and has no reply subject.
func Check(t *testing.T, user string, dial func(...nats.Option) (*nats.Conn, error)) {
	t.Helper()
	nc, err := dial(nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	try := func(what, subject string, users []string, do func() error) {
		if err := do(); err != nil {
			t.Fatal(subject, err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(subject, err)
		}
		// The server sends the error before its reply to Flush.
		violation := nc.LastError()
		allowed := violation == nil || !strings.Contains(violation.Error(), fmt.Sprintf("Permissions Violation for %s to %q", what, subject))
		if allowed != slices.Contains(users, user) {
			t.Errorf("%s: %s to %s: allowed is %v", user, what, subject, allowed)
		}
	}
	for subject, users := range mayPublish {
		try("Publish", subject, users, func() error { return nc.Publish(subject, nil) })
	}
	for subject, users := range maySubscribe {
		try("Subscription", subject, users, func() error {
			sub, err := nc.SubscribeSync(subject)
			if err == nil {
				t.Cleanup(func() { _ = sub.Unsubscribe() })
			}
			return err
		})
	}
}
