package peers

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/observe"
)

// A process that hangs stays in the queue group and receives its share of all reads
// until it has missed two pings of NATS: minutes by default. NATS notices sooner if a
// write to the connection blocks for its write_deadline. So the writer sends a process
// that no longer replies enough messages to fill the buffers of the connection.
const (
	callInterval = time.Second
	hungAfter    = 4 * callInterval
	hungBytes    = 16 << 20
	hungMessage  = 64 << 10
)

// peer is a process of the database that this one has heard of.
type peer struct {
	last  time.Time // time of its last reply
	asked bool      // asked by id, since then, whether it is still connected
}

// hear handles a reply to a call, at the inbox of this process: its last token is the
// peer that was asked, or "all".
func (p *Peers) hear(m *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.Header.Get("Status") != "" {
		delete(p.seen, m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]) // no responders: it has disconnected
		return
	}
	var ping micro.Ping
	if json.Unmarshal(m.Data, &ping) == nil && ping.Metadata[metaDatabase] == string(p.Database) && ping.ID != p.id {
		p.seen[ping.ID] = &peer{last: time.Now()}
	}
}

// Watch calls the other processes until ctx ends. While this one is the writer, it
// disconnects those that hang.
func (p *Peers) Watch(ctx context.Context) {
	next := time.NewTicker(callInterval)
	defer next.Stop()
	for {
		if p.nc.IsConnected() {
			p.call()
		}
		select {
		case <-next.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *Peers) call() {
	inbox, lapse := p.inbox(), micro.APIPrefix+".PING.lapse"
	ask := func(whom, of string) { _ = p.nc.PublishRequest(whom, inbox+of, nil) } // or it is closed
	var hung []string
	writer := p.OnlyWriter()
	p.mu.Lock()
	for id, one := range p.seen {
		switch silent := time.Since(one.last); {
		case silent > hungAfter && one.asked && writer:
			delete(p.seen, id)
			hung = append(hung, id)
		case silent >= hungAfter-callInterval && !one.asked && writer:
			one.asked = true
			ask(lapse+"."+id, id)
		}
	}
	p.mu.Unlock()
	for _, id := range hung {
		p.Events(observe.PeerHangs{ID: id})
		fill := make([]byte, hungMessage)
		for range hungBytes / hungMessage {
			_ = p.nc.Publish(lapse+"."+id, fill)
		}
	}
	ask(lapse+"."+string(p.Database), "all") // a process may serve many databases
}

// inbox returns the prefix of the subjects at which replies of peers arrive.
func (p *Peers) inbox() string { return peerInbox + p.id + "." }
