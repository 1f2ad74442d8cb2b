package embedded_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/attack"
)

// targets are subjects to which clients must not make NATS publish.
var targets = attack.Targets(db, secret)

// TestSteeredReplies tries every request that makes NATS publish a reply, with every
// target as reply subject: the log stays as it is, and only sent mutations are stored. NATS
// refuses those with a target of JetStream.
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

	requests := attack.Requests(db)
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
	var sent uint64
	for n, target := range targets {
		recreate()
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
		f.untouched(t)
		if attack.NATSRefuses(target) {
			if err := f.client.LastError(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("Publish with Reply of %q", target)) {
				t.Errorf("%s: not refused: %v", target, err)
			}
		} else {
			sent++
		}
		// A late effect counts, too: later rounds compare the totals.
		eventually(t, target+": the mutation is there", func() bool { return f.mutations(t) >= sent })
		for stream, name := range map[string]string{muts: "writer", log: "standby"} {
			if _, err := f.js.Consumer(ctx(t), stream, name); err != nil {
				t.Fatalf("%s: %s of %s: %v", target, name, stream, err)
			}
		}
		if got := f.mutations(t); got != sent {
			t.Fatalf("%s: %d mutations for %d that were sent", target, got, sent)
		}
		// Only messages of the clients' own account can reach the service:
		// acknowledgements, never events.
		if got := served.Load(); got > 3*int32(n+1) {
			t.Errorf("%s: %d requests served for %d that were sent", target, got, n+1)
		}
	}
}

// TestSteeredTraces: the server publishes the trace of a message to the subject that the
// message names, but only if its sender may publish there.
func TestSteeredTraces(t *testing.T) {
	t.Parallel()
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
