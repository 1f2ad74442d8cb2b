package gate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// pull passes a request for messages on. JetStream sends them to the client's
// inbox, without a stop here.
//
// A server tells a connection at once when nobody listens where it publishes,
// but it would tell the gate's, which has no inbox of that name. So the gate
// looks, beside the request and not before it, whether the consumer is there.
//
// An auditor may read from consumers of its own only, so its request is checked first.
// It could name the inbox of another client, but nobody can guess one, and JetStream
// delivers nothing to a subject without a listener.
func (g *Gate) pull(m *nats.Msg) {
	if !strings.HasPrefix(m.Reply, inboxes) {
		return
	}
	consumer := lastToken(m.Subject)
	if ours(consumer) {
		g.refusePull(m, errOurs)
		return
	}
	audits := isAuditor(m.Reply)
	first, theirs := g.pulled.look(consumer, time.Now())
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
		info, err := g.info(ctx, consumer)
		switch {
		case err != nil:
		case info.Error != nil && info.Error.Code == 404:
			g.pulled.forget(consumer)
			_ = g.clients.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{"Status": {"503"}}})
		case info.Error != nil || !audits:
		case info.Config.Metadata[madeBy] != auditor:
			g.refusePull(m, errOthers)
		case !theirs:
			g.pulled.audited(consumer)
			g.pass(m)
		}
	}()
}

func (g *Gate) refusePull(m *nats.Msg, why error) {
	_ = g.clients.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{"Status": {"409"}, "Description": {why.Error()}}})
}

// An auditor is who has this prefix for its inboxes, as user auditor of
// nats.conf may have no other. It takes messages from consumers only that
// it made itself: those have this in their metadata.
const (
	auditorInboxes = inboxes + auditor + "."
	auditor        = "auditor"
	madeBy         = "lapse.made_by"
)

func isAuditor(reply string) bool { return strings.HasPrefix(reply, auditorInboxes) }

var errOthers = errors.New("the consumer is not an auditor's: an auditor takes messages from its own only")

// pulled remembers which consumers were looked up within the last second, so
// that a quick reader costs no more than one look-up in that time, and of those
// which an auditor made.
type pulled struct {
	mu    sync.Mutex
	since time.Time
	names map[string]bool // whether an auditor made it
}

func (p *pulled) look(name string, now time.Time) (first, audited bool) {
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
	p.names[name] = true
}

func (p *pulled) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.names, name)
}

func lastToken(subject string) string {
	return subject[strings.LastIndexByte(subject, '.')+1:]
}
