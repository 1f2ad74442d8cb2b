package embedded_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/lapsedb/lapse/test/attack"
)

// targets are subjects to which clients must not make NATS publish.
var targets = attack.Targets(db, attack.Secret)

// TestSteeredReplies tries every request that makes NATS publish a reply, with every
// target as reply subject: the log stays as it is, and only sent mutations are stored. NATS
// refuses those with a target of JetStream.
func TestSteeredReplies(t *testing.T) { newServers(t, testSteeredReplies) }

func testSteeredReplies(t *testing.T, f *fixture) {
	f.CreateReaders(t)
	f.Replies(t, f.client, true, true, targets, f.Serve(t, f.service))
}

// TestSteeredTraces: the server publishes the trace of a message to the subject that the
// message names, but only if its sender may publish there.
func TestSteeredTraces(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	subscribe(t, f.service, db.API()+">", func(m *nats.Msg) {})
	seen, err := f.client.SubscribeSync(f.client.NewInbox())
	check(t, err)
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
				check(t, f.client.PublishMsg(&nats.Msg{Subject: subject, Reply: "_INBOX.x", Header: header}))
			}
		}
	}
	f.untouched(t)
	if m, err := seen.NextMsg(50 * time.Millisecond); err == nil {
		t.Errorf("a trace was seen: %s", m.Data)
	}
}

// TestMutationStreamRefusesEvents: a copy of an event in the mutations stream must not be
// judged: it would make an event, whose copy arrives next, and so on for ever. The
// processor sets Nats-Expected-Stream on every append. It stays on the stored event, so
// JetStream itself refuses the copy.
func TestMutationStreamRefusesEvents(t *testing.T) {
	t.Parallel()
	f := newServer(t)
	m := nats.NewMsg(appendTo("orders.DocumentCreated"))
	m.Header.Set("Nats-Expected-Stream", log)
	b := m.Header
	m.Header = nil
	must(t)(f.JS.PublishMsg(ctx(t), m))
	batch := make([]*nats.Msg, 3)
	for i := range batch {
		batch[i] = &nats.Msg{Subject: m.Subject, Header: nats.Header{"Nats-Expected-Stream": b["Nats-Expected-Stream"]}}
	}
	must(t)(jetstreamext.PublishMsgBatch(ctx(t), f.JS, batch))
	// As the processor: no client can do this.
	must(t)(f.JS.CreateConsumer(ctx(t), log, jetstream.ConsumerConfig{Durable: "loop", AckPolicy: jetstream.AckNonePolicy}))
	check(t, f.log.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+log+".loop", db.Mutations()+"document.upsert.orders.x", []byte(`{"batch":100}`)))
	eventually(t, "all is delivered", func() bool {
		c, err := f.JS.Consumer(ctx(t), log, "loop")
		return err == nil && c.CachedInfo().Delivered.Stream == 8
	})
	eventually(t, "the one without the header is there", func() bool { return f.Mutations(t) > 0 })
	if n := f.Mutations(t); n != 1 {
		t.Errorf("%d mutations", n)
	}
}
