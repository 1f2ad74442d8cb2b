package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/schema"
)

// accounts has an account APP with JetStream, which imports from the gate under LAPSE.API
// what an application may, and OTHER, which does, too.
const accounts = `accounts {
  LAPSE {
    jetstream: enabled
    users: [{ user: log, password: log }, { user: streams, password: streams, permissions STREAMS }]
    exports: [
      { service: "$JS.API.INFO", accounts: [CLIENTS] }
      { stream: "_INBOX.>", accounts: [CLIENTS] }, { stream: "_CLIENTS.>", accounts: [CLIENTS] }
      { stream: "_INBOX.app.>", accounts: [APP] }
      { service: "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.billing", response_type: stream, threshold: "2m", accounts: [APP] }
    ]
  }
  CLIENTS {
    users: [{ user: clients, password: clients }, { user: gate, password: gate, permissions GATE }]
    imports: [
      { service: { account: LAPSE, subject: "$JS.API.INFO" } }
      { stream: { account: LAPSE, subject: "_INBOX.>" } }, { stream: { account: LAPSE, subject: "_CLIENTS.>" }, to: ">" }
    ]
    exports: [ EXPORTS ]
  }
  APP {
    jetstream: enabled
    users: [{ user: app, password: app }]
    imports: [
      IMPORTS
      { service: { account: LAPSE, subject: "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.billing" }, to: "LAPSE.API.CONSUMER.MSG.NEXT.LAPSE_main.billing" }
      { stream: { account: LAPSE, subject: "_INBOX.app.>" } }
    ]
  }
  OTHER { users: [{ user: other, password: other }], imports: [ IMPORTS ] }
}`

// accountConfig returns accounts with what an application may import, and two subjects that
// are refused.
func accountConfig() string {
	var exports, imports strings.Builder
	for _, subject := range append(gate.ImportClients.Subjects("main"), "$JS.API.STREAM.CREATE.*", "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.refused") {
		fmt.Fprintf(&exports, "{ service: %q }\n", subject)
		fmt.Fprintf(&imports, "{ service: { account: CLIENTS, subject: %q }, to: %q }\n", subject, strings.Replace(subject, "$JS.API.", "LAPSE.API.", 1))
	}
	return strings.NewReplacer("STREAMS", gate.GateLog.Permissions("main"), "GATE", gate.GateClients.Permissions("main"),
		"EXPORTS", exports.String(), "IMPORTS", imports.String()).Replace(accounts)
}

// accountServer starts a server with accounts, a gate, and a log of some events. js is the
// JetStream of the log.
func accountServer(t *testing.T, events int) (s *server.Server, js jetstream.JetStream) {
	t.Helper()
	s = start(t, accountConfig())
	js = jetStream(t, connect(t, s, "log"))
	must(t)(js.CreateStream(ctx(t), jetstream.StreamConfig{Name: log, Subjects: []string{"lapse.main.events.>"}, AllowDirect: true}))
	for n := range events {
		must(t)(js.Publish(ctx(t), fmt.Sprintf("lapse.main.events.orders.%d", n%2), []byte(fmt.Sprint(n))))
	}
	g, err := gate.Open(connect(t, s, "gate"), connect(t, s, "streams", nats.CustomInboxPrefix("_GATE")), options)
	check(t, err)
	t.Cleanup(g.Close)
	return s, js
}

// prefixed returns a connection of a user in another account, and the JetStream of the log
// there.
func prefixed(t *testing.T, s *server.Server, user string, opts ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc := connect(t, s, user, opts...)
	js, err := jetstream.NewWithAPIPrefix(nc, "LAPSE.API")
	check(t, err)
	return nc, js
}

var billing = jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute}

// TestAccountConsumers: an application in an account of its own creates, finds, lists, edits,
// pauses and deletes consumers under a prefix.
func TestAccountConsumers(t *testing.T) {
	s, _ := accountServer(t, 1)
	_, js := prefixed(t, s, "app")
	made, err := js.CreateConsumer(ctx(t), log, billing)
	if err != nil || made.CachedInfo().Config.Metadata["lapse.account"] != "APP" {
		t.Fatal(made, err)
	}
	for range 2 {
		must(t)(js.CreateOrUpdateConsumer(ctx(t), log, billing))
	}
	c := billing
	c.MaxAckPending, c.Metadata = 200, map[string]string{"team": "money", "lapse.account": "OTHER"}
	if edited, err := js.CreateOrUpdateConsumer(ctx(t), log, c); err != nil || edited.CachedInfo().Config.MaxAckPending != 200 ||
		edited.CachedInfo().Config.Metadata["team"] != "money" || edited.CachedInfo().Config.Metadata["lapse.account"] != "APP" {
		t.Error(edited, err)
	}
	stream, err := js.Stream(ctx(t), log)
	check(t, err)
	var names []string
	for info := range stream.ListConsumers(ctx(t)).Info() {
		names = append(names, info.Name)
	}
	if fmt.Sprint(names) != "[billing]" {
		t.Error(names)
	}
	must(t)(js.PauseConsumer(ctx(t), log, "billing", time.Now().Add(time.Hour)))
	check(t, js.DeleteConsumer(ctx(t), log, "billing"))
	if _, err := js.Consumer(ctx(t), log, "billing"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Error(err)
	}
	if err := js.DeleteConsumer(ctx(t), log, "billing"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Error(err)
	}
	if _, err := js.CreateStream(ctx(t), jetstream.StreamConfig{Name: "own"}); err == nil || !strings.Contains(err.Error(), "not permitted") {
		t.Error(err)
	}
	if m, err := stream.GetMsg(ctx(t), 1); err != nil || string(m.Data) != "0" {
		t.Error(m, err)
	}
}

// TestAccountsOwn: an account finds the consumers of others, and edits, pauses, resets or
// deletes none of them. Clients of the gate's account may, and leave it to its account.
func TestAccountsOwn(t *testing.T) {
	s, _ := accountServer(t, 1)
	_, app := prefixed(t, s, "app")
	nc, other := prefixed(t, s, "other")
	clients := jetStream(t, connect(t, s, "clients"))
	must(t)(app.CreateConsumer(ctx(t), log, billing))
	common := billing
	common.Durable = "common"
	must(t)(clients.CreateConsumer(ctx(t), log, common))
	for _, c := range []jetstream.ConsumerConfig{billing, common} {
		if _, err := other.CreateOrUpdateConsumer(ctx(t), log, c); err != nil {
			t.Errorf("%s is not found: %v", c.Durable, err)
		}
		before, _ := clients.Consumer(ctx(t), log, c.Durable)
		edited := c
		edited.MaxDeliver = 3
		edited.Metadata = map[string]string{"lapse.account": "OTHER"}
		// What the sender claims about itself does not count.
		text, _ := json.Marshal(map[string]any{"stream_name": log, "config": edited})
		for subject, body := range map[string]string{"CREATE": string(text), "PAUSE": `{"pause_until":"2100-01-01T00:00:00Z"}`, "RESET": "", "DELETE": ""} {
			m := &nats.Msg{Subject: "LAPSE.API.CONSUMER." + subject + "." + log + "." + c.Durable, Data: []byte(body), Header: nats.Header{"Nats-Request-Info": {`{"acc":"APP"}`}}}
			if m, err := nc.RequestMsg(m, 30*time.Second); err != nil || !strings.Contains(string(m.Data), "account OTHER did not create the consumer") {
				t.Errorf("%s %s: %+v, %v", subject, c.Durable, m, err)
			}
		}
		after, err := clients.Consumer(ctx(t), log, c.Durable)
		if err != nil || fmt.Sprint(after.CachedInfo().Config) != fmt.Sprint(before.CachedInfo().Config) {
			t.Errorf("%s: %+v, %v", c.Durable, after, err)
		}
	}
	edited := billing
	edited.MaxDeliver = 3
	must(t)(clients.UpdateConsumer(ctx(t), log, edited))
	edited.MaxDeliver = 4
	must(t)(app.UpdateConsumer(ctx(t), log, edited))
	check(t, clients.DeleteConsumer(ctx(t), log, "billing"))
}

// TestAccountLimit: one account has a part of the consumers of the log.
func TestAccountLimit(t *testing.T) {
	const limit = 128
	s, _ := accountServer(t, 0)
	nc, app := prefixed(t, s, "app")
	_, other := prefixed(t, s, "other")
	make := func(js jetstream.JetStream, name string) error {
		_, err := js.CreateConsumer(ctx(t), log, jetstream.ConsumerConfig{Name: name, InactiveThreshold: time.Minute})
		return err
	}
	for n := range limit {
		name := fmt.Sprint("app-", n)
		if n%2 == 0 {
			name = schema.ReaderConsumer + name
		}
		if err := make(app, name); err != nil {
			t.Fatal(n, err)
		}
	}
	for _, name := range []string{"one-more", schema.ReaderConsumer + "one-more"} {
		text := fmt.Sprintf(`{"stream_name":%q,"config":{"name":%q}}`, log, name)
		if m, err := nc.Request("LAPSE.API.CONSUMER.CREATE."+log+"."+name, []byte(text), 30*time.Second); err != nil ||
			!strings.Contains(string(m.Data), "maximum consumers limit reached: LAPSE_main has 128 consumers of account APP") {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	if err := make(app, "app-1"); err != nil {
		t.Errorf("one that exists: %v", err)
	}
	if err := make(other, "others"); err != nil {
		t.Errorf("another account: %v", err)
	}
	check(t, app.DeleteConsumer(ctx(t), log, "app-1"))
	check(t, make(app, "one-more"))
}

// TestAccountRefused: what can't work for another account is refused at once, with what to
// do instead.
func TestAccountRefused(t *testing.T) {
	s, _ := accountServer(t, 4)
	nc, js := prefixed(t, s, "app")
	for _, name := range []string{"refused", "billing"} {
		c := billing
		c.Durable = name
		must(t)(js.CreateConsumer(ctx(t), log, c))
	}
	billing, err := js.Consumer(ctx(t), log, "billing")
	check(t, err)
	first, err := billing.Next(jetstream.FetchMaxWait(30 * time.Second))
	check(t, err)
	push := func(deliver string) string {
		return fmt.Sprintf(`{"stream_name":%q,"config":{"name":"push","ack_policy":"explicit","deliver_subject":%q}}`, log, deliver)
	}
	for _, c := range []struct{ subject, body, want string }{
		{"LAPSE.API.CONSUMER.MSG.NEXT." + log + ".refused", `{"batch":1}`, "import $JS.API.CONSUMER.MSG.NEXT.LAPSE_main.refused from the account of the streams"},
		{first.Reply(), "+NXT", "no next message"},
		{"LAPSE.API.DIRECT.GET." + log, `{"batch":2,"seq":1}`, "leave out batch"},
		{"LAPSE.API.DIRECT.GET." + log, `{"multi_last":["lapse.main.events.>"]}`, "leave out batch"},
		{"LAPSE.API.CONSUMER.CREATE." + log + ".push", push("_INBOX.x"), "an inbox prefix of the account"},
		{"LAPSE.API.CONSUMER.CREATE." + log + ".push", push("_R_.x.y"), "deliver_subject must begin with _INBOX."},
		{"LAPSE.API.CONSUMER.CREATE." + log + ".push", push("deliver.app.x"), "deliver_subject must begin with _INBOX."},
		{"LAPSE.API.STREAM.CREATE.own", `{"name":"own"}`, "account of your own"},
	} {
		m, err := nc.Request(c.subject, []byte(c.body), 30*time.Second)
		if err != nil || !strings.Contains(m.Header.Get("Description")+string(m.Data), c.want) {
			t.Errorf("%s %s: %v %s, %v", c.subject, c.body, m.Header, m.Data, err)
		}
	}
	for subject, body := range map[string]string{"": `{"seq":2}`, ".lapse.main.events.orders.1": ""} {
		if m, err := nc.Request("LAPSE.API.DIRECT.GET."+log+subject, []byte(body), 30*time.Second); err != nil || m.Header.Get("Nats-Stream") != log {
			t.Errorf("one message: %+v, %v", m, err)
		}
	}
	must(t)(billing.Next(jetstream.FetchMaxWait(30 * time.Second)))
}

// TestAccountPush: messages are pushed to inboxes of the account, with flow control and
// acknowledgements through the gate.
func TestAccountPush(t *testing.T) {
	const events = 5000
	s, streams := accountServer(t, events)
	nc, js := prefixed(t, s, "app", nats.CustomInboxPrefix("_INBOX.app"))
	c, err := js.CreatePushConsumer(ctx(t), log, jetstream.ConsumerConfig{
		Durable: "push", DeliverSubject: nc.NewInbox(), AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute,
		MaxAckPending: 200, FlowControl: true, IdleHeartbeat: time.Second})
	check(t, err)
	var n atomic.Int64
	all := make(chan struct{})
	reading, err := c.Consume(func(m jetstream.Msg) {
		if n.Add(1) < events {
			_ = m.Ack()
			return
		}
		if err := m.DoubleAck(context.Background()); err != nil {
			t.Error(err)
		}
		close(all)
	})
	check(t, err)
	defer reading.Stop()
	select {
	case <-all:
	case <-time.After(time.Minute):
		t.Fatalf("%d of %d", n.Load(), events)
	}
	own, err := streams.PushConsumer(ctx(t), log, "push")
	check(t, err)
	if info := own.CachedInfo(); info.NumRedelivered != 0 || info.AckFloor.Stream != events {
		t.Errorf("%+v", info)
	}
	if m, err := nc.Request("$JS.ACK."+log+".nobody.1.1.1.1.1", []byte("+ACK"), 30*time.Second); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("an acknowledgement of nothing: %+v, %v", m, err)
	}

	// As of old: without acknowledgements.
	old, err := nc.JetStream(nats.APIPrefix("LAPSE.API"))
	check(t, err)
	sub, err := old.SubscribeSync("", nats.OrderedConsumer(), nats.BindStream(log))
	check(t, err)
	for n := range events {
		if m, err := sub.NextMsg(time.Minute); err != nil || string(m.Data) != fmt.Sprint(n) {
			t.Fatalf("%d: %+v, %v", n, m, err)
		}
	}
}

// TestAccountMirror: a stream of the account mirrors the log by a consumer that the account
// created. A mirror that would create its own
// consumer is told what to do.
func TestAccountMirror(t *testing.T) {
	const events = 5000
	s, streams := accountServer(t, events)
	nc, _ := prefixed(t, s, "app")
	create := func(config string) {
		t.Helper()
		m, err := nc.Request("LAPSE.API.CONSUMER.DURABLE.CREATE."+log+".mirror", fmt.Appendf(nil, `{"stream_name":%q,"config":%s}`, log, config), 30*time.Second)
		if err != nil || strings.Contains(string(m.Data), `"error"`) {
			t.Fatalf("%s, %v", m.Data, err)
		}
	}
	create(`{"durable_name":"mirror","deliver_subject":"_INBOX.app.mirror","ack_policy":"flow_control","max_ack_pending":1000,"flow_control":true,"idle_heartbeat":1000000000}`)
	m, err := nc.Request("$JS.API.STREAM.CREATE.COPY", fmt.Appendf(nil, `{"name":"COPY","storage":"file","mirror":{"name":%q,"external":{"api":"LAPSE.API"},"consumer":{"name":"mirror","deliver_subject":"_INBOX.app.mirror"}}}`, log), 30*time.Second)
	if err != nil || strings.Contains(string(m.Data), `"error"`) {
		t.Fatalf("%s, %v", m.Data, err)
	}
	own := jetStream(t, nc)
	waitFor := func(want uint64) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			copied, err := own.Stream(ctx(t), "COPY")
			check(t, err)
			if state := copied.CachedInfo().State; state.LastSeq == want {
				return
			} else if time.Now().After(end) {
				t.Fatalf("%+v", state)
			}
		}
	}
	waitFor(events)
	for range events {
		must(t)(streams.Publish(ctx(t), "lapse.main.events.orders.x", nil))
	}
	waitFor(2 * events)
	copied, err := own.Stream(ctx(t), "COPY")
	check(t, err)
	if m, err := copied.GetMsg(ctx(t), 17); err != nil || m.Subject != "lapse.main.events.orders.0" || string(m.Data) != "16" {
		t.Errorf("%+v, %v", m, err)
	}
	// What it has is acknowledged by its replies to flow control.
	m, err = nc.Request("LAPSE.API.CONSUMER.INFO."+log+".mirror", nil, 30*time.Second)
	var info server.ConsumerInfo
	if err != nil || json.Unmarshal(m.Data, &info) != nil || info.AckFloor.Stream == 0 {
		t.Errorf("%s, %v", m.Data, err)
	}

	m, err = nc.Request("LAPSE.API.CONSUMER.CREATE."+log+".x", fmt.Appendf(nil, `{"stream_name":%q,"config":{"deliver_subject":"_INBOX.app.x","direct":true,"ack_policy":"none","flow_control":true,"idle_heartbeat":1000000000}}`, log), 30*time.Second)
	if err != nil || !strings.Contains(string(m.Data), "direct must be left out") || !strings.Contains(string(m.Data), "ack_policy flow_control") {
		t.Errorf("%s, %v", m.Data, err)
	}
}

// TestOpenNeedsRights: Open names the right that NATS refuses one of the two connections, and
// the connection: through such a gate nobody could read the log.
func TestOpenNeedsRights(t *testing.T) {
	t.Parallel()
	const clients, streams = "gate", "streams"
	for _, c := range []struct {
		asClients, asStreams string // users
		without, instead     string // rights
		subject, of          string // that the error names
	}{
		{clients, streams, `"lapse.main.events.>", "$JS.API.>"`, `"lapse.main.events.>"`, "$JS.API.", clients},
		{clients, streams, `"$JS.API.CONSUMER.CREATE.LAPSE_main", "$JS.API.CONSUMER.CREATE.LAPSE_main.>", `, "", "$JS.API.CONSUMER.CREATE.LAPSE_main.", streams},
		{clients, streams, `, "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.*"`, "", "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.", streams},
		{clients, streams, `"_GATE.>"]`, `"_OTHER.>"]`, "_GATE.", streams},
		{streams, streams, "", "", "$JS.FC.*.", streams},
	} {
		s := start(t, strings.Replace(accountConfig(), c.without, c.instead, 1))
		silent := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
		_, err := gate.Open(connect(t, s, c.asClients, silent), connect(t, s, c.asStreams, silent, nats.CustomInboxPrefix("_GATE")), options)
		if err == nil || !strings.Contains(err.Error(), `to "`+c.subject) || !strings.Contains(err.Error(), fmt.Sprintf("connection %q", c.of)) || strings.Contains(err.Error(), "\n") {
			t.Errorf("without %s: %v", c.without, err)
		}
	}
}
