package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Users with common rights.
var (
	everybody = []string{"processor", "bulk", "gate-log", "operator", "service", "gate-clients", "client", "producer", "auditor"}
	readers   = []string{"client", "auditor"}
	pullers   = []string{"bulk", "gate-log", "operator", "client", "auditor"}
)

// mayPublish lists the users that may publish to each subject. NATS refuses the others.
// The gate receives all that clients publish to JetStream, $KV, $O and event subjects.
var mayPublish = map[string][]string{
	// The log.
	"lapse.main.append.secret.orders.DocumentCreated": {"processor"},
	"lapse.main.events.orders.DocumentCreated":        {"client"},
	"$KV.LAPSE_main_LEASE.writer":                     {"processor", "client"},
	"$KV.LAPSE_main_LEASE.process.a":                  {"processor", "client"},
	"$KV.LAPSE_main_LEASE.other":                      {"client"},
	"$KV.OTHER.writer":                                {"client"},

	// Mutations and requests.
	"lapse.main.mutations.document.upsert.orders.a": {"client", "producer"},
	"lapse.main.mutations.collection.create.orders": {"client", "producer"},
	"lapse.main.api.document.get.orders.a":          readers,
	"lapse.main.api.collection.get.orders":          readers,
	"lapse.main.api.collection.list":                readers,
	"lapse.main.api.query.orders":                   readers,
	"lapse.main.api.history.orders.a":               readers,
	"lapse.main.api.status":                         readers,
	"lapse.main.api.forecast.orders":                readers,
	"lapse.main.api.document.upsert.orders.a":       {"client"},
	"lapse.main.api.document.delete.orders.a":       {"client"},
	"lapse.main.api.collection.delete.orders":       {"client"},
	"lapse.main.api.batch.orders":                   {"client"},
	"lapse.main.api.move":                           {"operator", "client"}, // nobody hears the client
	"$SRV.PING":                                     {"service", "client"},
	"$SRV.REPLY.x":                                  {"service", "client"},

	// Another database.
	"lapse.other.mutations.document.upsert.orders.a":   nil,
	"lapse.other.api.document.get.orders.a":            nil,
	"lapse.other.append.secret.orders.DocumentCreated": nil,

	// Streams.
	"$JS.API.INFO":                                    {"processor", "operator", "client", "auditor"},
	"$JS.API.STREAM.NAMES":                            {"processor", "bulk", "operator", "client", "auditor"},
	"$JS.API.STREAM.LIST":                             {"operator", "client", "auditor"},
	"$JS.API.STREAM.CREATE.LAPSE_main":                {"processor", "operator", "client"},
	"$JS.API.STREAM.CREATE.LAPSE_main_MUTATIONS":      {"processor", "operator", "client"},
	"$JS.API.STREAM.CREATE.KV_LAPSE_main_LEASE":       {"processor", "operator", "client"},
	"$JS.API.STREAM.CREATE.OBJ_LAPSE_main_SNAPSHOT_7": {"bulk", "operator", "client"},
	"$JS.API.STREAM.INFO.LAPSE_main":                  {"processor", "operator", "client", "auditor", "gate-log"},
	"$JS.API.STREAM.INFO.LAPSE_main_MUTATIONS":        {"processor", "operator", "client", "gate-log"},
	"$JS.API.STREAM.INFO.KV_LAPSE_main_LEASE":         {"processor", "operator", "client"},
	"$JS.API.STREAM.INFO.OBJ_LAPSE_main_SNAPSHOT_7":   {"bulk", "operator", "client"},
	"$JS.API.STREAM.UPDATE.LAPSE_main":                {"operator", "client"},
	"$JS.API.STREAM.UPDATE.LAPSE_main_MUTATIONS":      {"operator", "client"},
	"$JS.API.STREAM.UPDATE.KV_LAPSE_main_LEASE":       {"operator", "client"},
	"$JS.API.STREAM.UPDATE.OBJ_LAPSE_main_SNAPSHOT_7": {"operator", "client"},
	"$JS.API.STREAM.DELETE.LAPSE_main":                {"operator", "client"},
	"$JS.API.STREAM.DELETE.LAPSE_main_MUTATIONS":      {"operator", "client"},
	"$JS.API.STREAM.DELETE.KV_LAPSE_main_LEASE":       {"operator", "client"},
	"$JS.API.STREAM.DELETE.OBJ_LAPSE_main_SNAPSHOT_7": {"bulk", "operator", "client"},
	"$JS.API.STREAM.PURGE.LAPSE_main":                 {"processor", "operator", "client"},
	"$JS.API.STREAM.PURGE.LAPSE_main_MUTATIONS":       {"processor", "operator", "client"},
	"$JS.API.STREAM.PURGE.KV_LAPSE_main_LEASE":        {"operator", "client"},
	"$JS.API.STREAM.PURGE.OBJ_LAPSE_main_SNAPSHOT_7":  {"bulk", "operator", "client"},
	"$JS.API.STREAM.MSG.GET.LAPSE_main":               {"processor", "operator", "client", "auditor", "gate-log"},
	"$JS.API.STREAM.MSG.GET.KV_LAPSE_main_LEASE":      {"operator", "client"},
	"$JS.API.STREAM.MSG.DELETE.LAPSE_main":            {"operator", "client"},
	"$JS.API.STREAM.SNAPSHOT.LAPSE_main":              {"operator", "client"},
	"$JS.API.STREAM.RESTORE.LAPSE_main":               {"operator", "client"},
	"$JS.API.STREAM.PEER.REMOVE.LAPSE_main":           {"operator", "client"},
	"$JS.API.STREAM.LEADER.STEPDOWN.LAPSE_main":       {"operator", "client"},
	"$JS.API.DIRECT.GET.LAPSE_main":                   {"operator", "client", "gate-log"},
	"$JS.API.DIRECT.GET.KV_LAPSE_main_LEASE.$KV.x":    {"processor", "operator", "client"},
	"$JS.API.META.LEADER.STEPDOWN":                    {"operator", "client"}, // answered in the system account only
	"$JS.API.SERVER.REMOVE":                           {"operator", "client"}, // likewise
	"$O.LAPSE_main_SNAPSHOT_7.C.x":                    {"bulk", "client"},
	"$O.LAPSE_main_SNAPSHOT_7.M.x":                    {"bulk", "client"},
	"$JS.SNAPSHOT.ACK.LAPSE_main.x":                   {"operator"},
	"$JS.SNAPSHOT.RESTORE.LAPSE_main.x":               {"operator"},

	// Consumers.
	"$JS.API.CONSUMER.CREATE.LAPSE_main":                    {"gate-log", "operator", "client"},
	"$JS.API.CONSUMER.CREATE.LAPSE_main.x":                  pullers,
	"$JS.API.CONSUMER.CREATE.LAPSE_main.x.lapse.main.>":     pullers,
	"$JS.API.CONSUMER.DURABLE.CREATE.LAPSE_main.x":          {"gate-log", "operator", "client"},
	"$JS.API.CONSUMER.INFO.LAPSE_main.x":                    {"gate-log", "operator", "client", "auditor"},
	"$JS.API.CONSUMER.LIST.LAPSE_main":                      {"gate-log", "operator", "client"},
	"$JS.API.CONSUMER.NAMES.LAPSE_main":                     {"gate-log", "operator", "client"},
	"$JS.API.CONSUMER.DELETE.LAPSE_main.x":                  {"bulk", "gate-log", "operator", "client"},
	"$JS.API.CONSUMER.DELETE.LAPSE_main.x.auditor":          {"operator", "client", "auditor"},
	"$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.x":                pullers,
	"$JS.API.CONSUMER.PAUSE.LAPSE_main.x":                   {"operator", "client", "gate-log"},
	"$JS.API.CONSUMER.LEADER.STEPDOWN.LAPSE_main.x":         {"operator", "client"},
	"$JS.ACK.LAPSE_main.x.1.1.1.1.1":                        {"gate-log", "client"},
	"$JS.FC.LAPSE_main.x.y":                                 {"gate-log", "client"},
	"$JS.API.CONSUMER.CREATE.LAPSE_main_MUTATIONS.x":        {"bulk", "operator", "client"},
	"$JS.API.CONSUMER.DELETE.LAPSE_main_MUTATIONS.x":        {"bulk", "operator", "client"},
	"$JS.API.CONSUMER.MSG.NEXT.LAPSE_main_MUTATIONS.x":      {"bulk", "operator", "client"},
	"$JS.ACK.LAPSE_main_MUTATIONS.x.1.1.1.1.1":              nil,
	"$JS.API.CONSUMER.CREATE.KV_LAPSE_main_LEASE.x":         {"processor", "operator", "client"},
	"$JS.API.CONSUMER.MSG.NEXT.OBJ_LAPSE_main_SNAPSHOT_7.x": {"operator", "client"},

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
	"$SYS.REQ.SERVER.PING":   nil,
	"$SYS.REQ.USER.INFO":     nil,
	"$SYS.ACCOUNT.LAPSE.x":   nil,
	"$NRG.V.x":               nil,
	"anything":               nil,
	"lapse.main.anything":    nil,
	"lapse.main.api":         nil,
	"$JS.EVENT.ADVISORY.API": nil,
}

// maySubscribe is mayPublish for subscriptions.
var maySubscribe = map[string][]string{
	">": nil, "*": nil, "*.>": nil, "lapse.>": nil, "lapse.main.>": nil, "lapse.*.api.>": nil, "$JS.>": nil, "$JS.API.>": {"gate-clients"}, "$SYS.>": nil, "$KV.>": {"gate-clients"}, "$O.>": {"gate-clients"},
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
	"_INBOX.>":          {"client"},
	"_INBOX.x":          {"client"},
	"_INBOX.producer.>": {"producer"},
	"_INBOX.auditor.>":  {"auditor"},
	"_PROCESSOR.>":      {"processor"},
	"_BULK.>":           {"bulk"},
	"_GATE.>":           {"gate-log"},
	"_SERVICE.>":        nil,
	"_OPERATOR.>":       {"operator"},
	"_R_.>":             nil,
	"_GR_.>":            nil,
}

// TestPermissions: each user may use exactly the subjects listed for it. One node of
// three has no JetStream, so permitted requests have no effect.
func TestPermissions(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	for _, user := range everybody {
		t.Run(user, func(t *testing.T) {
			refused := make(chan error, 1024)
			nc := c.connect(t, user, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
			try := func(what, subject string, allowed []string, do func() error) {
				if err := do(); err != nil {
					t.Fatal(subject, err)
				}
				if err := nc.Flush(); err != nil {
					t.Fatal(subject, err)
				}
				// The server sends the error before its reply to Flush.
				want := !slices.Contains(allowed, user)
				violation := nc.LastError()
				is := violation != nil && strings.Contains(violation.Error(), fmt.Sprintf("Permissions Violation for %s to %q", what, subject))
				if is != want {
					t.Errorf("%s to %s: refused is %v", what, subject, is)
				}
			}
			for subject, allowed := range mayPublish {
				try("Publish", subject, allowed, func() error { return nc.Publish(subject, nil) })
			}
			for subject, allowed := range maySubscribe {
				try("Subscription", subject, allowed, func() error {
					sub, err := nc.SubscribeSync(subject)
					if err == nil {
						t.Cleanup(func() { _ = sub.Unsubscribe() })
					}
					return err
				})
			}
		})
	}
}

// TestInboxIsolation: the client's _INBOX.> does not receive replies to users with
// inboxes of their own.
func TestInboxIsolation(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	client, service := c.connect(t, "client"), c.connect(t, "service")
	seen, err := client.SubscribeSync("_INBOX.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, inbox := range []string{"_INBOX.producer.x", "_INBOX.auditor.x", "_INBOX.last"} {
		if err := service.Publish(inbox, nil); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := seen.NextMsg(patience); err != nil || m.Subject != "_INBOX.last" {
		t.Errorf("seen: %+v, %v", m, err)
	}
	if m, err := seen.NextMsg(10 * time.Millisecond); err == nil {
		t.Errorf("seen: %s", m.Subject)
	}
}

// auditor: an auditor reads with its own consumers, and can neither change those of others
// nor take their messages. A client edits them, from any node.
func (f *fixture) auditor(t *testing.T) {
	app, err := jetstream.New(f.connect(t, "client"))
	if err != nil {
		t.Fatal(err)
	}
	var billing jetstream.Consumer
	repeat(t, func(ctx context.Context) (err error) {
		billing, err = app.CreateConsumer(ctx, log, jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy})
		return err
	})
	nc := f.connect(t, "auditor")
	auditor, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	repeat(t, func(ctx context.Context) error {
		_, err := auditor.CreateOrUpdateConsumer(ctx, log, jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: db.Events() + "none.>"})
		if err == nil {
			t.Error("the filter of another's consumer is changed")
		} else if !errors.Is(err, jetstream.ErrConsumerExists) {
			return err
		}
		return nil
	})
	for n := range 6 {
		repeat(t, func(ctx context.Context) error {
			c := jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 10 + n}
			edited, err := app.CreateOrUpdateConsumer(ctx, log, c)
			if err == nil && edited.CachedInfo().Config.MaxDeliver != 10+n {
				t.Errorf("edited to %+v", edited.CachedInfo().Config)
			}
			return err
		})
	}
	// The auditor may name another inbox, at which it cannot listen.
	for range 6 {
		edit := fmt.Appendf(nil, `{"stream_name":%q,"action":"update","config":{"durable_name":"billing","ack_policy":"explicit","filter_subject":%q}}`, log, db.Events()+"none.>")
		if err := nc.PublishRequest("$JS.API.CONSUMER.CREATE."+log+".billing", "_INBOX.somebody.1", edit); err != nil {
			t.Fatal(err)
		}
	}
	const next = "$JS.API.CONSUMER.MSG.NEXT." + log + "."
	for range 6 { // so that every gate is likely to get one
		if m := request(t, nc, next+"billing", `{"batch":4,"expires":1000000000}`); m.Header.Get("Status") != "409" {
			t.Errorf("messages of another's consumer: %+v", m)
		}
		if err := nc.PublishRequest(next+"billing", "_INBOX.somebody", []byte(`{"batch":4,"expires":1000000000}`)); err != nil {
			t.Fatal(err)
		}
	}
	var own jetstream.Consumer
	repeat(t, func(ctx context.Context) (err error) {
		own, err = auditor.OrderedConsumer(ctx, log, jetstream.OrderedConsumerConfig{})
		return err
	})
	for n := 0; n < 4; {
		_, err := own.Next(jetstream.FetchMaxWait(patience))
		if err == nil {
			n++
		} else if !errors.Is(err, jetstream.ErrNoHeartbeat) { // heartbeats are late on a busy machine
			t.Fatal(n, err)
		}
	}
	for name, want := range map[string]string{"billing": "its own", own.CachedInfo().Name: `"success":true`} {
		if m := request(t, nc, "$JS.API.CONSUMER.DELETE."+log+"."+name+".auditor", ""); !strings.Contains(string(m.Data), want) {
			t.Errorf("delete %s: %s", name, m.Data)
		}
	}
	repeat(t, func(ctx context.Context) error {
		info, err := billing.Info(ctx)
		if err == nil && (info.Delivered.Consumer != 0 || info.NumPending != 4 || info.Config.FilterSubject != "") {
			t.Errorf("%+v", info)
		}
		return err
	})
}
