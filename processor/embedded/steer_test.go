package embedded_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// targets are the subjects that a client would have NATS publish to, that it
// may not publish to itself, or where the publishing would feed on itself.
// The attacker is given the secret of the log's stream: not to know it is the
// last line of defence, not the only one.
var targets = []string{
	"lapse.main.events.orders.DocumentCreated",
	"lapse.main.append.guess.orders.DocumentCreated",
	appendTo("orders.DocumentCreated"),
	"$JS.API.STREAM.DELETE." + log,
	"$JS.API.STREAM.PURGE." + log,
	"$JS.API.STREAM.DELETE." + muts,
	"$JS.API.STREAM.PURGE." + muts,
	"$JS.API.CONSUMER.DELETE." + muts + ".writer",
	"$JS.API.CONSUMER.DELETE." + log + ".standby",
	"$KV.lease.writer",
	"lapse.main.mutations.document.upsert.orders.x",
	"lapse.main.api.document.upsert.orders.x",
	"_PROCESSOR.x",
	"$SRV.PING",
}

// Every way of having something published in reply, with every target.
func TestSteeredReplies(t *testing.T) { newServers(t, testSteeredReplies) }

func testSteeredReplies(t *testing.T, f *fixture) {
	for stream, name := range map[string]string{muts: "writer", log: "standby"} {
		if _, err := f.js.CreateConsumer(ctx(t), stream, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
			t.Fatal(err)
		}
	}
	var served atomic.Int32
	if _, err := f.service.Subscribe(db.API()+">", func(m *nats.Msg) { served.Add(1); m.Respond([]byte("{}")) }); err != nil {
		t.Fatal(err)
	}
	if _, err := f.service.Subscribe("$SRV.>", func(m *nats.Msg) { m.Respond([]byte("{}")) }); err != nil {
		t.Fatal(err)
	}
	f.service.Flush()

	var requests []nats.Msg
	add := func(subject, body string) {
		requests = append(requests, nats.Msg{Subject: subject, Data: []byte(body)})
	}
	consumer := func(name, policy string) string {
		return fmt.Sprintf(`{"stream_name":%q,"config":{"name":%q,"durable_name":%q,"ack_policy":%q}}`, log, name, name, policy)
	}
	add("lapse.main.mutations.document.upsert.orders.y", `{}`)
	add("lapse.main.api.document.get.orders.y", ``)
	add("$SRV.PING", ``)
	add("$JS.API.INFO", ``)
	add("$JS.API.STREAM.NAMES", ``)
	for _, ask := range []string{"LIST", "NAMES"} {
		add("$JS.API.CONSUMER."+ask+"."+log, ``)
	}
	add("$JS.API.CONSUMER.CREATE."+log, `{"stream_name":"LAPSE_main","config":{"ack_policy":"none"}}`)
	add("$JS.API.CONSUMER.CREATE."+log+".mine", consumer("mine", "none"))
	add("$JS.API.CONSUMER.DURABLE.CREATE."+log+".mine", consumer("mine", "none"))
	add("$JS.API.CONSUMER.INFO."+log+".standby", ``)
	add("$JS.API.CONSUMER.INFO."+log+".nobody", ``)
	add("$JS.API.CONSUMER.DELETE."+log+".nobody", ``)
	for _, pull := range []string{``, `{"batch":100,"no_wait":true}`, `{"batch":100,"expires":100000000}`, `{"batch":100,"expires":300000000,"idle_heartbeat":100000000}`, `nonsense`} {
		for _, from := range []string{"everything", "emptied", "nobody"} {
			add("$JS.API.CONSUMER.MSG.NEXT."+log+"."+from, pull)
		}
	}
	for _, ack := range []string{"", "+ACK", "-NAK", "+NXT", `+NXT {"batch":100}`, "+TERM", "+WPI"} {
		add("$JS.ACK."+log+".everything.1.1.1.1700000000000000000.3", ack)
	}
	add("$JS.FC."+log+".everything.x", ``)
	// Those that are refused anyway.
	add("$JS.API.STREAM.INFO."+log, ``)
	add("$JS.API.STREAM.MSG.GET."+log, `{"seq":1}`)
	add("$JS.API.DIRECT.GET."+log, `{"seq":1}`)
	add("$JS.API.DIRECT.GET."+muts, `{"seq":1}`)
	add("$JS.API.DIRECT.GET."+log+"."+allEvents[0], ``)

	js, _ := jetstream.New(f.client)
	recreate := func() {
		for _, name := range []string{"everything", "emptied", "mine"} {
			js.DeleteConsumer(ctx(t), log, name)
		}
		for _, name := range []string{"everything", "emptied"} {
			c := jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy}
			if name == "emptied" {
				c.DeliverPolicy = jetstream.DeliverNewPolicy
			}
			if _, err := js.CreateConsumer(ctx(t), log, c); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, target := range targets {
		recreate()
		n, s := f.mutations(t), served.Load()
		for _, r := range requests {
			m := &nats.Msg{Subject: r.Subject, Reply: target, Data: r.Data, Header: nats.Header{
				"Nats-Expected-Stream": {log}, "Nats-Request-Info": {`{"acc":"LAPSE"}`}}}
			if strings.HasPrefix(r.Subject, "lapse.main.mutations.") {
				m.Header = nil
			}
			if err := f.client.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		f.client.Flush()
		time.Sleep(50 * time.Millisecond)
		f.untouched(t)
		for stream, name := range map[string]string{muts: "writer", log: "standby"} {
			if _, err := f.js.Consumer(ctx(t), stream, name); err != nil {
				t.Fatalf("%s: %s of %s: %v", target, name, stream, err)
			}
		}
		if got := f.mutations(t) - n; got != 1 {
			t.Errorf("%s: %d mutations for the one that was sent", target, got)
		}
		// What reaches the service can only have come from the clients' own
		// account: acknowledgements, never events.
		if got := served.Load() - s; got > 3 {
			t.Errorf("%s: %d requests served for the one that was sent", target, got)
		}
	}
}

// The server publishes the trace of a message wherever the message says, if
// its sender may publish there.
func TestSteeredTraces(t *testing.T) {
	f := newServer(t)
	if _, err := f.service.Subscribe(db.API()+">", func(m *nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	f.service.Flush()
	seen, err := f.client.SubscribeSync(f.client.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range append(targets, seen.Subject) {
		for _, header := range []nats.Header{
			{"Nats-Trace-Dest": {target}},
			{"Nats-Trace-Dest": {target}, "Nats-Trace-Only": {"true"}},
			{"Nats-Trace-Dest": {target}, "traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
		} {
			for _, subject := range []string{
				db.Mutations() + "document.upsert.orders.y", db.API() + "document.get.orders.y", "$JS.API.INFO",
				"$JS.API.CONSUMER.NAMES." + log, "$JS.API.CONSUMER.MSG.NEXT." + log + ".x", "$JS.ACK." + log + ".x.1.1.1.1.1",
			} {
				if err := f.client.PublishMsg(&nats.Msg{Subject: subject, Reply: "_INBOX.x", Header: header}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	f.untouched(t)
	if m, err := seen.NextMsg(50 * time.Millisecond); err == nil {
		t.Errorf("a trace was seen: %s", m.Data)
	}
}
