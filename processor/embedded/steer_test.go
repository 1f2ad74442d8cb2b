package embedded_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

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
