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

// mayPublish lists the subjects that users, and no others, may publish to; "" is nobody.
// Clients are client, of nats.conf, and anonymous, of the embedded server. The gate receives
// all that they publish to JetStream, $KV, $O and event subjects. To what is anonymous's
// alone, and to lapse.main.api.move of a client, nobody listens.
var mayPublish = map[string][]string{
	"processor": {"lapse.main.append.secret.orders.DocumentCreated", "lapse.main.append.guess.orders.DocumentCreated", "_OPERATOR.x"},
	"processor bulk operator client anonymous auditor":     {"$JS.API.STREAM.NAMES"},
	"processor gate-log operator client anonymous":         {"$JS.API.STREAM.INFO.LAPSE_main_MUTATIONS"},
	"processor gate-log operator client anonymous auditor": {"$JS.API.STREAM.INFO.LAPSE_main", "$JS.API.STREAM.MSG.GET.LAPSE_main"},
	"processor operator client anonymous": {
		"$JS.API.STREAM.CREATE.LAPSE_main", "$JS.API.STREAM.CREATE.LAPSE_main_MUTATIONS", "$JS.API.STREAM.CREATE.KV_LAPSE_main_LEASE",
		"$JS.API.STREAM.INFO.KV_LAPSE_main_LEASE", "$JS.API.STREAM.PURGE.LAPSE_main", "$JS.API.STREAM.PURGE.LAPSE_main_MUTATIONS",
		"$JS.API.DIRECT.GET.KV_LAPSE_main_LEASE.$KV.x", "$JS.API.CONSUMER.CREATE.KV_LAPSE_main_LEASE.x",
	},
	"processor operator client anonymous auditor": {"$JS.API.INFO"},
	"processor client anonymous":                  {"$KV.LAPSE_main_LEASE.writer"},
	"bulk gate-log operator client anonymous":     {"$JS.API.CONSUMER.DELETE.LAPSE_main.x"},
	"bulk gate-log operator client anonymous auditor": {
		"$JS.API.CONSUMER.CREATE.LAPSE_main.x", "$JS.API.CONSUMER.CREATE.LAPSE_main.x.lapse.main.>",
		"$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.x",
	},
	"bulk operator client anonymous": {
		"$JS.API.STREAM.CREATE.OBJ_LAPSE_main_SNAPSHOT_7", "$JS.API.STREAM.INFO.OBJ_LAPSE_main_SNAPSHOT_7",
		"$JS.API.STREAM.DELETE.OBJ_LAPSE_main_SNAPSHOT_7", "$JS.API.STREAM.PURGE.OBJ_LAPSE_main_SNAPSHOT_7",
		"$JS.API.CONSUMER.CREATE.LAPSE_main_MUTATIONS.x", "$JS.API.CONSUMER.DELETE.LAPSE_main_MUTATIONS.x",
		"$JS.API.CONSUMER.MSG.NEXT.LAPSE_main_MUTATIONS.x",
	},
	"bulk client anonymous": {"$O.LAPSE_main_SNAPSHOT_7.C.x", "$O.LAPSE_main_SNAPSHOT_7.M.x"},
	"gate-log operator client anonymous": {
		"$JS.API.DIRECT.GET.LAPSE_main", "$JS.API.CONSUMER.CREATE.LAPSE_main", "$JS.API.CONSUMER.DURABLE.CREATE.LAPSE_main.x",
		"$JS.API.CONSUMER.LIST.LAPSE_main", "$JS.API.CONSUMER.NAMES.LAPSE_main", "$JS.API.CONSUMER.PAUSE.LAPSE_main.x",
		"$JS.API.CONSUMER.RESET.LAPSE_main.x", "$JS.API.CONSUMER.UNPIN.LAPSE_main.x",
	},
	"gate-log operator client anonymous auditor": {"$JS.API.CONSUMER.INFO.LAPSE_main.x"},
	"gate-log client anonymous":                  {"$JS.ACK.LAPSE_main.x.1.1.1.1.1", "$JS.FC.LAPSE_main.x.y"},
	"operator":                                   {"$JS.SNAPSHOT.ACK.LAPSE_main.x", "$JS.SNAPSHOT.RESTORE.LAPSE_main.x"},
	"operator client anonymous": {
		"lapse.main.api.move", "$JS.API.STREAM.UPDATE.LAPSE_main", "$JS.API.STREAM.UPDATE.LAPSE_main_MUTATIONS",
		"$JS.API.STREAM.UPDATE.KV_LAPSE_main_LEASE", "$JS.API.STREAM.UPDATE.OBJ_LAPSE_main_SNAPSHOT_7",
		"$JS.API.STREAM.DELETE.LAPSE_main", "$JS.API.STREAM.DELETE.LAPSE_main_MUTATIONS", "$JS.API.STREAM.DELETE.KV_LAPSE_main_LEASE",
		"$JS.API.STREAM.PURGE.KV_LAPSE_main_LEASE", "$JS.API.STREAM.MSG.GET.KV_LAPSE_main_LEASE",
		"$JS.API.STREAM.MSG.DELETE.LAPSE_main", "$JS.API.STREAM.SNAPSHOT.LAPSE_main", "$JS.API.STREAM.RESTORE.LAPSE_main",
		"$JS.API.STREAM.PEER.REMOVE.LAPSE_main", "$JS.API.STREAM.LEADER.STEPDOWN.LAPSE_main", "$JS.API.META.LEADER.STEPDOWN",
		"$JS.API.SERVER.REMOVE", "$JS.API.CONSUMER.LEADER.STEPDOWN.LAPSE_main.x",
		"$JS.API.CONSUMER.MSG.NEXT.OBJ_LAPSE_main_SNAPSHOT_7.x",
	},
	"operator client anonymous auditor": {"$JS.API.STREAM.LIST", "$JS.API.CONSUMER.DELETE.LAPSE_main.x.auditor"},
	"service gate-clients":              {"_INBOX.x", "_INBOX.auditor.x", "_INBOX.producer.x", "_MINE.x", "_R_.x"},
	"service client anonymous":          {"$SRV.PING", "$SRV.REPLY.x"},
	"client anonymous": {
		"lapse.main.events.orders.DocumentCreated", "$KV.LAPSE_main_LEASE.other", "$KV.LAPSE_main_LEASE.process.a", "$KV.OTHER.writer",
		"lapse.main.api.document.upsert.orders.a", "lapse.main.api.document.delete.orders.a", "lapse.main.api.collection.delete.orders",
		"lapse.main.api.batch.orders",
	},
	"client anonymous producer": {"lapse.main.mutations.document.upsert.orders.a", "lapse.main.mutations.collection.create.orders"},
	"client anonymous auditor": {
		"lapse.main.api.document.get.orders.a", "lapse.main.api.collection.get.orders", "lapse.main.api.collection.list",
		"lapse.main.api.query.orders", "lapse.main.api.history.orders.a", "lapse.main.api.status", "lapse.main.api.forecast.orders",
	},
	"anonymous": {
		"lapse.other.mutations.document.upsert.orders.a", "lapse.other.api.document.get.orders.a", "lapse.main.anything",
		"lapse.main.api",
	},
	"": {
		"lapse.other.append.secret.orders.DocumentCreated", "$JS.ACK.LAPSE_main_MUTATIONS.x.1.1.1.1.1", "_PROCESSOR.x",
		"_CLIENTS._MINE.x", "_BULK.x", "_GATE.x", "_SERVICE.x", "$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO",
		"$SYS.REQ.ACCOUNT.LAPSE.INFO", "$SYS.ACCOUNT.LAPSE.x", "$NRG.V.x", "anything", "$JS.EVENT.ADVISORY.API",
	},
}

// maySubscribe is mayPublish for subscriptions. What anonymous may subscribe to shows nothing
// of others, see TestInboxesArePrivate.
var maySubscribe = map[string][]string{
	"processor":              {"$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.LAPSE_main", "_PROCESSOR.>"},
	"processor service":      {"lapse.main.api.move"},
	"processor gate-clients": {"$KV.LAPSE_main_LEASE.writer"},
	"bulk":                   {"_BULK.>"},
	"gate-log":               {"_GATE.>"},
	"operator":               {"_OPERATOR.>"},
	"service":                {"lapse.main.api.>", "lapse.main.api.status", "$SRV.>", "$SRV.PING"},
	"gate-clients": {
		"$JS.API.>", "$KV.>", "$KV.LAPSE_main_LEASE.process.*", "$O.>", "lapse.main.events.>", "$JS.API.CONSUMER.>", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.>",
		"$JS.ACK.>", "$JS.FC.>",
	},
	"client anonymous":   {"_INBOX.>", "_INBOX.x"},
	"anonymous":          {">", "*", "*.>", "_GR_.>"},
	"anonymous producer": {"_INBOX.producer.>"},
	"anonymous auditor":  {"_INBOX.auditor.>"},
	"": {
		"lapse.>", "lapse.main.>", "lapse.*.api.>", "$JS.>", "$SYS.>", "lapse.main.append.>", "lapse.main.mutations.>",
		"lapse.other.api.>", "$JS.SNAPSHOT.>", "$JS.EVENT.>", "_SERVICE.>", "_R_.>",
	},
}

// Check fails the test unless a user may use exactly the subjects listed for it. What it
// publishes is empty and has no reply subject. A subject in without the user may not use
// where dial connects to.
func Check(t *testing.T, user string, dial func(...nats.Option) (*nats.Conn, error), without ...string) {
	t.Helper()
	nc, err := dial(nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	try := func(what, users, subject string, do func() error) {
		allowed := slices.Contains(strings.Fields(users), user) && !slices.Contains(without, subject)
		if err := do(); err != nil {
			t.Fatal(subject, err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(subject, err)
		}
		// The server sends the error before its reply to Flush.
		violation := fmt.Sprintf("Permissions Violation for %s to %q", what, subject)
		if is := !strings.Contains(fmt.Sprint(nc.LastError()), violation); is != allowed {
			t.Errorf("%s: %s to %s: allowed is %v", user, what, subject, is)
		}
	}
	for users, subjects := range mayPublish {
		for _, subject := range subjects {
			try("Publish", users, subject, func() error { return nc.Publish(subject, nil) })
		}
	}
	for users, subjects := range maySubscribe {
		for _, subject := range subjects {
			try("Subscription", users, subject, func() error {
				sub, err := nc.SubscribeSync(subject)
				if err == nil {
					t.Cleanup(func() { _ = sub.Unsubscribe() })
				}
				return err
			})
		}
	}
}
