package gate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// accounts has an account APP with JetStream, which imports from the gate under LAPSE.API
// what an application needs, and OTHER, which does, too. The permissions are those of
// nats.conf.
const accounts = `accounts {
  LAPSE {
    jetstream: enabled
    users: [
      { user: log, password: log }
      { user: streams, password: streams, permissions {
        publish: [
          "$JS.API.STREAM.INFO.LAPSE_main", "$JS.API.STREAM.MSG.GET.LAPSE_main", "$JS.API.DIRECT.GET.LAPSE_main", "$JS.API.DIRECT.GET.LAPSE_main.>"
          "$JS.API.CONSUMER.CREATE.LAPSE_main", "$JS.API.CONSUMER.CREATE.LAPSE_main.>", "$JS.API.CONSUMER.DURABLE.CREATE.LAPSE_main.*"
          "$JS.API.CONSUMER.INFO.LAPSE_main.*", "$JS.API.CONSUMER.DELETE.LAPSE_main.*"
          "$JS.API.CONSUMER.PAUSE.LAPSE_main.*", "$JS.API.CONSUMER.RESET.LAPSE_main.*", "$JS.API.CONSUMER.UNPIN.LAPSE_main.*"
          "$JS.API.CONSUMER.NAMES.LAPSE_main", "$JS.API.CONSUMER.LIST.LAPSE_main", "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.*"
          "$JS.ACK.LAPSE_main.>", "$JS.FC.LAPSE_main.>"
        ]
        subscribe: ["_GATE.>"]
      } }
    ]
    exports: [
      { service: "$JS.API.INFO", accounts: [CLIENTS] }
      { stream: "_INBOX.>", accounts: [CLIENTS] }, { stream: "_CLIENTS.>", accounts: [CLIENTS] }
      { stream: "_INBOX.app.>", accounts: [APP] }
      { service: "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.billing", response_type: stream, threshold: "2m", accounts: [APP] }
    ]
  }
  CLIENTS {
    users: [
      { user: clients, password: clients }
      { user: gate, password: gate, permissions {
        publish: { allow: ["*.>"], deny: ["lapse.>", "$SRV.>", "$JS.>", "$KV.>", "$O.>", "$SYS.>", "$NRG.>", "_GATE.>", "_CLIENTS.>"] }
        subscribe: ["$JS.API.>", "$JS.ACK.>", "$JS.FC.>", "lapse.main.events.>", "$KV.>", "$O.>"]
      } }
    ]
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
      { service: { account: CLIENTS, subject: "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.refused" }, to: "LAPSE.API.CONSUMER.MSG.NEXT.LAPSE_main.refused" }
      { service: { account: LAPSE, subject: "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.billing" }, to: "LAPSE.API.CONSUMER.MSG.NEXT.LAPSE_main.billing" }
      { stream: { account: LAPSE, subject: "_INBOX.app.>" } }
    ]
  }
  OTHER { users: [{ user: other, password: other }], imports: [ IMPORTS ] }
}`

// shared are the subjects of the gate that another account imports.
var shared = []string{
	"$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.LAPSE_main", "$JS.API.STREAM.MSG.GET.LAPSE_main", "$JS.API.DIRECT.GET.LAPSE_main.>", "$JS.API.DIRECT.GET.LAPSE_main",
	"$JS.API.CONSUMER.CREATE.LAPSE_main.>", "$JS.API.CONSUMER.DURABLE.CREATE.LAPSE_main.*", "$JS.API.CONSUMER.INFO.LAPSE_main.*",
	"$JS.API.CONSUMER.NAMES.LAPSE_main", "$JS.API.CONSUMER.LIST.LAPSE_main", "$JS.API.CONSUMER.DELETE.LAPSE_main.*",
	"$JS.API.CONSUMER.PAUSE.LAPSE_main.*", "$JS.API.CONSUMER.RESET.LAPSE_main.*", "$JS.API.STREAM.CREATE.*",
	"$JS.ACK.LAPSE_main.>", "$JS.FC.LAPSE_main.>",
}

// accountServer starts a server with accounts, a gate, and a log of some events. js is the
// JetStream of the log.
func accountServer(t *testing.T, events int) (s *server.Server, js jetstream.JetStream) {
	t.Helper()
	exports := `{ service: "$JS.API.CONSUMER.MSG.NEXT.LAPSE_main.refused" }`
	imports := ""
	for _, subject := range shared {
		to := "LAPSE.API" + strings.TrimPrefix(subject, "$JS.API")
		if !strings.HasPrefix(subject, "$JS.API.") {
			to = subject
		}
		exports += fmt.Sprintf("\n{ service: %q }", subject)
		imports += fmt.Sprintf("\n{ service: { account: CLIENTS, subject: %q }, to: %q }", subject, to)
	}
	o := harness.NATSOptions(t.TempDir())
	if err := o.ProcessConfigString(strings.NewReplacer("EXPORTS", exports, "IMPORTS", imports).Replace(accounts)); err != nil {
		t.Fatal(err)
	}
	s = harness.StartNATS(t, o)
	nc := connect(t, s, "log")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx(t), jetstream.StreamConfig{Name: log, Subjects: []string{"lapse.main.events.>"}, AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	for n := range events {
		if _, err := js.Publish(ctx(t), fmt.Sprintf("lapse.main.events.orders.%d", n%2), []byte(fmt.Sprint(n))); err != nil {
			t.Fatal(err)
		}
	}
	g, err := gate.Open(connect(t, s, "gate"), connect(t, s, "streams", nats.CustomInboxPrefix("_GATE")), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return s, js
}

// prefixed returns a connection of a user in another account, and the JetStream of the log
// there.
func prefixed(t *testing.T, s *server.Server, user string, opts ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc := connect(t, s, user, opts...)
	js, err := jetstream.NewWithAPIPrefix(nc, "LAPSE.API")
	if err != nil {
		t.Fatal(err)
	}
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
		if _, err := js.CreateOrUpdateConsumer(ctx(t), log, billing); err != nil {
			t.Error(err)
		}
	}
	c := billing
	c.MaxAckPending, c.Metadata = 200, map[string]string{"team": "money", "lapse.account": "OTHER"}
	if edited, err := js.CreateOrUpdateConsumer(ctx(t), log, c); err != nil || edited.CachedInfo().Config.MaxAckPending != 200 ||
		edited.CachedInfo().Config.Metadata["team"] != "money" || edited.CachedInfo().Config.Metadata["lapse.account"] != "APP" {
		t.Error(edited, err)
	}
	stream, err := js.Stream(ctx(t), log)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for info := range stream.ListConsumers(ctx(t)).Info() {
		names = append(names, info.Name)
	}
	if fmt.Sprint(names) != "[billing]" {
		t.Error(names)
	}
	if _, err := js.PauseConsumer(ctx(t), log, "billing", time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if err := js.DeleteConsumer(ctx(t), log, "billing"); err != nil {
		t.Error(err)
	}
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
	clients, err := jetstream.New(connect(t, s, "clients"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.CreateConsumer(ctx(t), log, billing); err != nil {
		t.Fatal(err)
	}
	common := billing
	common.Durable = "common"
	if _, err := clients.CreateConsumer(ctx(t), log, common); err != nil {
		t.Fatal(err)
	}
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
	if _, err := clients.UpdateConsumer(ctx(t), log, edited); err != nil {
		t.Error(err)
	}
	edited.MaxDeliver = 4
	if _, err := app.UpdateConsumer(ctx(t), log, edited); err != nil {
		t.Error(err)
	}
	if err := clients.DeleteConsumer(ctx(t), log, "billing"); err != nil {
		t.Error(err)
	}
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
	if err := app.DeleteConsumer(ctx(t), log, "app-1"); err != nil {
		t.Fatal(err)
	}
	if err := make(app, "one-more"); err != nil {
		t.Error(err)
	}
}
