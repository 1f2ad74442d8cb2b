package embedded_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

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
