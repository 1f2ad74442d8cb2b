package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// Requests of other accounts, which import the subjects of the gate. NATS replaces their
// reply subjects, and names the account in a header. It lets no client name such a
// reply subject, so the header is true. It accepts one reply to each request.

// byImport reports whether a request comes from another account. Its reply subject is one
// that schema.IsReply accepts.
func byImport(m *nats.Msg) bool { return m.Reply != "" && !schema.IsInbox(m.Reply) }

// accountOf returns the account that a request comes from, "" for that of the clients.
func accountOf(m *nats.Msg) string {
	return schema.AccountOf(m.Reply, m.Header.Get(schema.RequestInfo))
}

// accepts reports whether a message is what a subscription asks for. JetStream of another
// account can send one with another subject by an import. A reply would go to any subject
// that a request names, so it has to be an inbox, or what NATS puts in its place.
func accepts(m *nats.Msg) bool {
	return schema.Covers(m.Sub.Subject, m.Subject) &&
		(m.Reply == "" || schema.IsReply(m.Reply)) && (!byImport(m) || accountOf(m) != "")
}

// notOwned returns why an account may not change a consumer, nil if it may. Clients have
// all consumers in common: account "" is theirs.
func notOwned(account string, c *server.ConsumerConfig) error {
	if account == "" || c.Metadata[schema.ConsumerAccount] == account {
		return nil
	}
	return fmt.Errorf("account %s did not create the consumer: an account edits, resets, pauses and deletes its own only", account)
}

// changeOwned passes a request on that changes or deletes a consumer, if refusal returns
// nil for it.
func (g *Gate) changeOwned(m *nats.Msg, o operation, subject string, refusal func(*server.ConsumerConfig) error) {
	g.later(m, o, func(ctx context.Context) ([]byte, error) {
		info, err := g.info(ctx, o.stream(m), lastToken(subject))
		if err != nil {
			return nil, err
		} else if info.Error != nil {
			return json.Marshal(server.ApiResponse{Type: o.reply, Error: info.Error})
		} else if why := refusal(info.Config); why != nil {
			return json.Marshal(server.ApiResponse{Type: o.reply, Error: notPermitted(why)})
		}
		r, err := g.ask(ctx, &nats.Msg{Subject: subject, Header: apiHeader(m), Data: m.Data})
		if err != nil {
			return nil, err
		}
		return shown(r.Data, senderOf(m))
	})
}

// relay hands a reply of JetStream to a request of another account, whose reply subject
// follows the gate's inbox.
func (g *Gate) relay(m *nats.Msg) {
	if accepts(m) {
		g.publish(&nats.Msg{Subject: m.Subject[len(g.inbox)+1:], Header: m.Header, Data: m.Data})
	}
}

// errPull refuses another account messages from a consumer: they would reach the account
// of the clients only.
func errPull(log, consumer string) error {
	return fmt.Errorf("messages do not pass from the gate to another account: import $JS.API.CONSUMER.MSG.NEXT.%s.%s from the account of the streams, with response_type stream", log, consumer)
}

var (
	errPush = fmt.Errorf("deliver_subject must have an inbox prefix of the account, as %[1]sapp.1 has: import %[1]sapp.> from the account of the streams as a stream, and connect with that prefix", schema.InboxPrefix)
	errNext = errors.New("an acknowledgement from another account asks for no next message: pull it")
	errMany = errors.New("another account gets one message at a time: leave out batch and multi_last, or use a consumer")
)
