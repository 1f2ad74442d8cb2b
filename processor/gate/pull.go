package gate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// pull passes a request for messages on. JetStream sends them to the client's inbox,
// past the gate.
//
// NATS reports "no responders" to the connection that published, which is the gate's.
// So the gate checks, concurrently with the request, whether the consumer exists.
//
// An auditor may read from consumers of its own only, so its request is checked first.
// It could name the inbox of another client, but nobody can guess one, and JetStream
// delivers nothing to a subject without a listener.
func (g *Gate) pull(m *nats.Msg, o operation) {
	name, consumer := lastToken(m.Subject), consumerOf(m)
	switch {
	case !g.isLog(o.stream(m)):
		g.refuse(m, o)
		return
	case isServers(name):
		g.fail(m, o, errServerConsumer)
		return
	case byImport(m):
		g.fail(m, o, errPull(o.stream(m), name))
		return
	}
	audits := isAuditor(m.Reply)
	first, theirs := g.pulled.lookup(consumer, time.Now())
	if !audits || theirs {
		g.pass(m)
		if !first {
			return
		}
	}
	select {
	case g.calls <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-g.calls }()
		ctx, cancel := context.WithTimeout(g.ctx, callTimeout)
		defer cancel()
		info, err := g.info(ctx, o.stream(m), name)
		switch {
		case err != nil:
		case info.Error != nil && info.Error.Code == 404:
			g.pulled.remove(consumer)
			g.publish(&nats.Msg{Subject: m.Reply, Header: nats.Header{"Status": {"503"}}})
		case info.Error != nil || !audits:
		case !isAudited(info.Config):
			g.fail(m, o, errOthers)
		case !theirs:
			g.pulled.audited(consumer)
			g.pass(m)
		}
	}()
}

// madeBy is a key of the metadata of a consumer. An auditor has other inboxes than
// clients: user auditor of nats.conf may have no other. It pulls messages only from
// consumers whose creator was an auditor, and deletes no others.
const madeBy = "lapse.made_by"

func isAuditor(reply string) bool { return strings.HasPrefix(reply, schema.AuditorInboxes) }

func isAudited(c *server.ConsumerConfig) bool {
	return c.Metadata[madeBy] == schema.Auditor
}

var errOthers = errors.New("the consumer is not an auditor's: an auditor reads and deletes its own only")

// deleteAudited deletes a consumer that an auditor created. It does not ask for the inbox
// of an auditor: an auditor could name that of another client.
func (g *Gate) deleteAudited(m *nats.Msg, o operation) {
	g.changeOwned(m, o, strings.TrimSuffix(m.Subject, "."+schema.Auditor), func(c *server.ConsumerConfig) error {
		if !isAudited(c) {
			return errOthers
		}
		return nil
	})
}

// pulled caches the consumers that were looked up within the last second, so that a fast
// reader costs one look-up in that time, and which of them an auditor created. It is
// emptied as a whole: entries need no times of their own.
type pulled struct {
	mu    sync.Mutex
	since time.Time
	names map[string]bool // by stream and consumer: whether an auditor created it
}

// lookup reports whether the consumer was not looked up within the last second, and whether
// it is known to be an auditor's. The caller looks it up if it is the first.
func (p *pulled) lookup(name string, now time.Time) (first, audited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil || now.Sub(p.since) > time.Second {
		p.names, p.since = make(map[string]bool), now
	}
	audited, there := p.names[name]
	p.names[name] = audited
	return !there, audited
}

func (p *pulled) audited(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names != nil {
		p.names[name] = true
	}
}

func (p *pulled) remove(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.names, name)
}

func (p *pulled) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names = nil
}

func lastToken(subject string) string {
	return subject[strings.LastIndexByte(subject, '.')+1:]
}

// consumerOf returns stream.consumer, the end of a request's subject.
func consumerOf(m *nats.Msg) string {
	stream := m.Subject[:strings.LastIndexByte(m.Subject, '.')]
	return m.Subject[strings.LastIndexByte(stream, '.')+1:]
}
