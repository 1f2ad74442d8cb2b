package gate

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// TestAccepts: a subscription's handler gets messages with subjects that it asks for, and
// with reply subjects to which a reply may go.
func TestAccepts(t *testing.T) {
	const info, acks = "$JS.API.CONSUMER.INFO.*.*", "$JS.ACK.LAPSE_main.>"
	for _, c := range []struct {
		sub, subject, reply, account string
		want                         bool
	}{
		{info, "$JS.API.CONSUMER.INFO.LAPSE_main.x", "_INBOX.x", "", true},
		{info, "$JS.API.CONSUMER.INFO.LAPSE_main.x", "_R_.x.y", `{"acc":"APP"}`, true},
		{info, "$JS.API.CONSUMER.INFO.LAPSE_main.x", "_R_.x.y", "", false},
		{info, "$JS.API.CONSUMER.INFO.LAPSE_main.x", "_R_.x.y", `{"acc":""}`, false},
		{info, "$JS.API.CONSUMER.INFO.LAPSE_main.x", "_R_.x.y", "APP", false},
		{info, "$JS.API.CONSUMER.INFO.LAPSE_main.x", "$JS.ACK.own.c.1.1.1.1.1", `{"acc":"APP"}`, false},
		{info, "$JS.API.CONSUMER.INFO.LAPSE_main.x", "_GR_.x.y", "", false},
		{info, "$JS.API.CONSUMER.DELETE.LAPSE_main.x", "_INBOX.x", "", false},
		{acks, "$JS.ACK.LAPSE_main.c.1.1.1.1.1", "", "", true},
		{acks, "$JS.ACK.LAPSE_main.c.1.1.1.1.1", "$JS.ACK.own.c.1.1.1.1.1", "", false},
		{acks, "$JS.API.STREAM.DELETE.LAPSE_main", "", "", false},
	} {
		m := &nats.Msg{Subject: c.subject, Reply: c.reply, Sub: &nats.Subscription{Subject: c.sub}, Header: nats.Header{}}
		if c.account != "" {
			m.Header.Set("Nats-Request-Info", c.account)
		}
		if accepts(m) != c.want {
			t.Errorf("%+v", c)
		}
	}
}
