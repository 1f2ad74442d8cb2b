package service

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/observe"
)

// TestForeignMessages: JetStream of an importing account, and leaf nodes, can send messages
// with other subjects than the one that was imported, or with reply subjects that NATS
// refuses from clients. They are no requests.
func TestForeignMessages(t *testing.T) {
	const api = "lapse.main.api."
	for _, m := range []nats.Msg{
		{Subject: api + "collection.delete.c", Reply: "$JS.ACK.own.c.1.1.1.1.1", Sub: &nats.Subscription{Subject: api + "collection.*.*"}},
		{Subject: api + "collection.delete.c", Reply: "_INBOX.x.1", Sub: &nats.Subscription{Subject: api + "status"}},
		{Subject: api + "collection.delete.c", Reply: "_R_.x.1", Sub: &nats.Subscription{Subject: api + "status"}},
		{Subject: "$JS.API.STREAM.DELETE.LAPSE_main", Reply: "_R_.x.1", Sub: &nats.Subscription{Subject: api + "status"}},
		{Subject: api + "status", Reply: "_GR_.x.1", Sub: &nats.Subscription{Subject: api + "status"}},
	} {
		var got []any
		s := &Service{Config: Config{Database: "main", Events: func(e observe.Event) { got = append(got, e) }}}
		s.handle(&m, nil)
		if want := (observe.ReplyRefused{Subject: m.Subject, Reply: m.Reply}); len(got) != 1 || got[0] != want {
			t.Errorf("%s by %s with reply %s: %v", m.Subject, m.Sub.Subject, m.Reply, got)
		}
	}
}
