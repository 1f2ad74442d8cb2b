package service

import (
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// clients identifies clients by inbox. NATS does not name the sender of a request, but
// client libraries subscribe to one inbox per connection, and end their reply subjects
// with a token per request. Inboxes not used recently share one client, so a client
// gains nothing from a new inbox for each request. Those of another account are one client.
type clients struct {
	known *lru.TwoQueueCache[string, struct{}]
}

// knownClients is the number of inboxes remembered: as many as the connections that the
// embedded server accepts.
const knownClients = 4096

// newcomers is the client of all inboxes not used recently.
const newcomers = ""

func newClients() *clients {
	known, err := lru.New2Q[string, struct{}](knownClients)
	if err != nil {
		panic(err) // only for a size of 0
	}
	return &clients{known}
}

// of returns the client of a sender, see senderOf: the sender itself if it was seen of
// late, else newcomers. A sender is remembered at its first request, so its second one has
// a line of its own.
func (c *clients) of(sender string) string {
	if _, ok := c.known.Get(sender); ok {
		return sender
	}
	c.known.Add(sender, struct{}{})
	return newcomers
}

// nuidPrefix is the length of the part of a NUID that is the same for a whole process.
const nuidPrefix = 12

// senderOf returns what the requests of one client share: the reply subject without its
// last token, or the process part of an inbox that is one NUID; for requests from another
// account, whose reply subjects NATS makes, the name of the account.
func senderOf(m *nats.Msg) string {
	if account := schema.AccountOf(m.Reply, m.Header.Get(schema.RequestInfo)); account != "" {
		return "account " + account // no inbox has a space
	}
	inbox := strings.TrimPrefix(m.Reply, schema.InboxPrefix)
	if end := strings.LastIndexByte(inbox, '.'); end >= 0 {
		return inbox[:end]
	}
	return inbox[:min(len(inbox), nuidPrefix)]
}
