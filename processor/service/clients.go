package service

import (
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/lapsedb/lapse/schema"
)

// clients identifies clients by inbox. NATS does not name the sender of a request, but
// client libraries subscribe to one inbox per connection, and end their reply subjects
// with a token per request. Inboxes not used recently share one client, so a client
// gains nothing from a new inbox for each request.
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

// of returns the client of a reply subject.
func (c *clients) of(reply string) string {
	client := clientOf(reply)
	if _, ok := c.known.Get(client); ok {
		return client
	}
	c.known.Add(client, struct{}{})
	return newcomers
}

// nuidPrefix is the length of the part of a NUID that is the same for a whole process.
const nuidPrefix = 12

// clientOf returns the part that the reply subjects of one client share: the inbox
// without its last token, or the process part of an inbox that is one NUID.
func clientOf(reply string) string {
	inbox := strings.TrimPrefix(reply, schema.InboxPrefix)
	if end := strings.LastIndexByte(inbox, '.'); end >= 0 {
		return inbox[:end]
	}
	return inbox[:min(len(inbox), nuidPrefix)]
}
