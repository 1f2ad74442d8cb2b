package gate

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// pull passes a request for messages on. JetStream sends them to the client's
// inbox, without a stop here.
//
// A server tells a connection at once when nobody listens where it publishes,
// but it would tell the gate's, which has no inbox of that name. So the gate
// looks, beside the request and not before it, whether the consumer is there.
func (g *Gate) pull(m *nats.Msg) {
	if !strings.HasPrefix(m.Reply, inboxes) {
		return
	}
	g.pass(m)
	consumer := lastToken(m.Subject)
	if !g.pulled.first(consumer, time.Now()) {
		return
	}
	select {
	case g.calls <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-g.calls }()
		r, err := g.ask(nats.NewMsg("$JS.API.CONSUMER.INFO." + g.db.LogStream() + "." + consumer))
		if err != nil {
			return
		}
		var info server.JSApiConsumerInfoResponse
		if json.Unmarshal(r.Data, &info) != nil || info.Error == nil || info.Error.Code != 404 {
			return
		}
		g.pulled.forget(consumer)
		g.clients.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{"Status": {"503"}}})
	}()
}

// pulled remembers which consumers were looked up within the last second, so
// that a quick reader costs no more than one look-up in that time.
type pulled struct {
	mu    sync.Mutex
	since time.Time
	names map[string]struct{}
}

func (p *pulled) first(name string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil || now.Sub(p.since) > time.Second {
		p.names, p.since = make(map[string]struct{}), now
	}
	_, there := p.names[name]
	p.names[name] = struct{}{}
	return !there
}

func (p *pulled) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.names, name)
}

func lastToken(subject string) string {
	return subject[strings.LastIndexByte(subject, '.')+1:]
}
