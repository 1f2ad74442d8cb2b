package embedded_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/attack"
	"github.com/lapsedb/lapse/test/rights"
)

// TestRefusedRequests: the gate refuses what clients may send to it and may not do, whatever
// its content, with a JetStream error. A consumer by which lapse itself reads stays as it is.
func TestRefusedRequests(t *testing.T) { newServers(t, testRefusedRequests) }

func testRefusedRequests(t *testing.T, f *fixture) {
	f.CreateReaders(t)
	const server = log + "." + schema.ServerConsumer + "x"
	own, err := f.JS.CreateConsumer(ctx(t), log, jetstream.ConsumerConfig{Name: schema.ServerConsumer + "x", InactiveThreshold: time.Hour})
	check(t, err)
	must(t)(f.JS.Publish(ctx(t), db.Mutations()+"document.upsert.orders.y", []byte("{}")))
	replies, err := f.client.SubscribeSync(f.client.NewInbox())
	check(t, err)
	steal := fmt.Sprintf(`{"stream_name":%q,"config":{"name":"thief","deliver_subject":"_INBOX.x","ack_policy":"none"}}`, muts)
	type request struct{ subject, body string }
	requests := []request{
		{"lapse.main.events.x.DocumentCreated", `{}`},
		{"$JS.API.STREAM.CREATE.X", `{"name":"X","subjects":["x.>"]}`},
		{"$JS.API.STREAM.CREATE.X", `{"name":"X","subjects":["lapse.main.events.>"]}`},
		{"$JS.API.STREAM.CREATE.X", `{"name":"X","sources":[{"name":"LAPSE_main"}]}`},
		{"$JS.API.STREAM.CREATE.X", `{"name":"X","mirror":{"name":"LAPSE_main"}}`},
		{"$JS.API.STREAM.CREATE.X", `{"name":"X","subjects":["x.>"],"republish":{"src":"x.>","dest":"lapse.main.append.guess.>"}}`},
		{"$JS.API.STREAM.CREATE.KV_lease", `{"name":"KV_lease","subjects":["$KV.lease.>"]}`},
		{"$JS.API.STREAM.CREATE.OBJ_files", `{"name":"OBJ_files","subjects":["$O.files.>"]}`},
		{"$JS.API.STREAM.UPDATE." + log, `{"name":"LAPSE_main","subjects":["lapse.main.events.>"]}`},
		{"$JS.API.STREAM.UPDATE." + muts, `{"name":"LAPSE_main_MUTATIONS","subjects":["x.>"]}`},
		{"$JS.API.STREAM.SNAPSHOT." + log, `{"deliver_subject":"_INBOX.x"}`},
		{"$JS.API.STREAM.RESTORE.X", `{"config":{"name":"X"},"state":{}}`},
		{"$JS.API.STREAM.MSG.GET." + muts, `{"seq":1}`},
		{"$JS.API.STREAM.MSG.DELETE." + log, `{"seq":1}`},
		{"$JS.API.STREAM.MSG.DELETE." + muts, `{"seq":1}`},
		{"$JS.API.STREAM.PEER.REMOVE." + log, `{"peer":"x"}`},
		{"$JS.API.DIRECT.GET." + log, `{"seq":1}`},
		{"$JS.API.DIRECT.GET." + muts, `{"seq":1}`},
		{"$JS.API.CONSUMER.CREATE." + muts, steal},
		{"$JS.API.CONSUMER.CREATE." + muts + ".thief", steal},
		{"$JS.API.CONSUMER.DURABLE.CREATE." + muts + ".thief", steal},
		{"$JS.API.CONSUMER.MSG.NEXT." + muts + ".writer", `1`},
		{"$JS.API.CONSUMER.PAUSE." + server, `{"pause_until":"2100-01-01T00:00:00Z"}`},
		{"$JS.API.CONSUMER.RESET." + server, `{"seq":1}`},
		{"$JS.API.CONSUMER.MSG.NEXT." + server, `1`},
		{"$JS.API.CONSUMER.PAUSE." + muts + ".writer", `{"pause_until":"2100-01-01T00:00:00Z"}`},
		{"$JS.API.SERVER.REMOVE", `{"peer":"x"}`},
	}
	for _, subject := range []string{
		"$JS.API.STREAM.DELETE." + log, "$JS.API.STREAM.DELETE." + muts, "$JS.API.STREAM.PURGE." + log, "$JS.API.STREAM.PURGE." + muts,
		"$JS.API.STREAM.INFO.KV_LAPSE_main_LEASE", "$JS.API.STREAM.INFO.X", "$JS.API.STREAM.LEADER.STEPDOWN." + log,
		"$JS.API.DIRECT.GET." + log + "." + allEvents[0], "$JS.API.CONSUMER.INFO." + muts + ".writer", "$JS.API.CONSUMER.DELETE." + muts + ".writer",
		"$JS.API.CONSUMER.NAMES." + muts, "$JS.API.CONSUMER.LIST." + muts, "$JS.API.CONSUMER.DELETE." + server,
		"$JS.API.CONSUMER.LEADER.STEPDOWN." + log + ".standby", "$JS.API.META.LEADER.STEPDOWN", "$JS.API.ACCOUNT.PURGE.LAPSE", "$KV.lease.writer",
		"$O.files.C.x",
	} {
		requests = append(requests, request{subject, ""})
	}
	for _, r := range requests {
		check(t, f.client.PublishRequest(r.subject, replies.Subject, []byte(r.body)))
		m, err := replies.NextMsg(patience)
		if err != nil {
			t.Fatal(r.subject, err)
		}
		var reply struct{ Error *jetstream.APIError }
		description := m.Header.Get("Description")
		if json.Unmarshal(m.Data, &reply) == nil && reply.Error != nil && reply.Error.ErrorCode == jetstream.JSErrCodeBadRequest {
			description = reply.Error.Description
		}
		if !strings.HasPrefix(description, "not permitted: ") {
			t.Errorf("%s is answered with %v %s", r.subject, m.Header, m.Data)
		}
		f.Unchanged(t, r.subject)
	}
	// Acknowledgements are not answered.
	check(t, f.client.PublishRequest("$JS.ACK."+server+".1.1.1.1700000000000.3", replies.Subject, []byte("+NXT")))
	f.untouched(t)
	if info, err := own.Info(ctx(t)); err != nil || info.Delivered.Consumer != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	if more, _, err := replies.Pending(); err != nil || more > 0 {
		t.Errorf("%d more replies, %v", more, err)
	}
	if n := f.Mutations(t); n != 1 {
		t.Errorf("%d mutations", n)
	}
}

// TestInboxesArePrivate: no subscription of a client receives requests of others,
// mutations, appends or replies to the processor.
func TestInboxesArePrivate(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	seen := make(chan *nats.Msg, 1024)
	for _, subject := range []string{
		">", "*", "*.>", "lapse.>", "lapse.*.>", "lapse.main.>", "lapse.*.append.>", "lapse.main.append.*.>", appendTo(">"),
		"lapse.main.api.>", "lapse.*.api.>", "lapse.main.mutations.>", "lapse.main.events.>", "$JS.>", "$JS.API.>", "$JS.API.CONSUMER.>",
		"$JS.ACK.>", "$JS.FC.>", "$SYS.>", "$SRV.>", "$KV.>", "_PROCESSOR.>", "_SERVICE.>", "_GATE.>", "_R_.>", "_GR_.>",
		"_INBOX.>", // allowed: see below
	} {
		for _, queue := range []string{"", "q"} {
			nc := f.connect(t)
			must(t)(nc.QueueSubscribe(subject, queue, func(m *nats.Msg) { seen <- m }))
			nc.Flush()
		}
	}
	must(t)(f.service.QueueSubscribe(db.API()+">", "q", func(m *nats.Msg) { m.Respond([]byte("secret reply")) }))
	f.service.Flush()

	// Traffic of every kind, by others.
	victim := f.connect(t)
	for range 5 {
		if _, err := victim.Request(db.API()+"document.get.orders.a", []byte("secret request"), patience); err != nil {
			t.Fatal("a request was stolen:", err)
		}
		must(t)(victim.Request(db.Mutations()+"document.create.orders.a", []byte("secret mutation"), patience))
		must(t)(f.JS.Publish(ctx(t), appendTo("orders.DocumentCreated"), []byte("secret event")))
		f.State(t)
	}
	time.Sleep(100 * time.Millisecond)
	for {
		select {
		case m := <-seen:
			// Replies to clients go to _INBOX.>, where clients are not kept
			// apart: they are one user. Nothing else goes there.
			switch {
			case !strings.HasPrefix(m.Subject, "_INBOX."), strings.Contains(string(m.Data), attack.Secret), strings.Contains(m.Subject+m.Reply, attack.Secret):
				t.Errorf("seen: %s %s %q", m.Subject, m.Reply, m.Data)
			case string(m.Data) != "secret reply" && !strings.Contains(string(m.Data), `"stream":"LAPSE_main_MUTATIONS"`):
				t.Errorf("seen: %s %q", m.Subject, m.Data)
			}
		default:
			return
		}
	}
}

// TestPermissions: each user may use exactly the subjects that package rights lists for it.
func TestPermissions(t *testing.T) {
	t.Parallel()
	key, err := nkeys.CreateUser()
	check(t, err)
	public, err := key.PublicKey()
	check(t, err)
	s := start(t, embedded.Options{Operator: public})
	for _, user := range []string{"service", "gate-log", "gate-clients"} {
		rights.Check(t, user, func(opts ...nats.Option) (*nats.Conn, error) { return s.ConnectAs(user, opts...) })
	}
	connect := func(login nats.Option) func(...nats.Option) (*nats.Conn, error) {
		return func(opts ...nats.Option) (*nats.Conn, error) { return nats.Connect(s.URL(), append(opts, login)...) }
	}
	rights.Check(t, "anonymous", connect(nats.Timeout(patience)))
	rights.Check(t, "operator", connect(nats.Nkey(public, key.Sign)), "lapse.main.api.move") // there is one process only
}

// TestGuessedCredentialsRefused: a user needs its password, and guesses are refused.
func TestGuessedCredentialsRefused(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	for _, user := range []string{"processor", "service", "gate_log", "gate_clients", "client", "nobody", ""} {
		for _, password := range []string{"", user, "{{.Who.Processor}}"} {
			if user == "" && password == "" {
				continue
			}
			if nc, err := nats.Connect(f.URL(), nats.UserInfo(user, password)); err == nil {
				nc.Close()
				t.Errorf("%q gets in with %q", user, password)
			}
		}
	}
}
