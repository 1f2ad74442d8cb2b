package service

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/observe"
)

// A process that hangs stays in the queue group, and gets its share of all reads, until
// NATS has sent it two pings in vain: after minutes by default. NATS notices sooner if it
// cannot write to the connection, for as long as its write_deadline. So the writer, which
// misses the process, sends it as much as the buffers of the connection hold.
const (
	callInterval = time.Second
	hungAfter    = 4 * callInterval
	hungBytes    = 16 << 20
	hungMessage  = 64 << 10
)

// peers are the processes of the database that this one has heard of.
type peers struct {
	mu   sync.Mutex
	seen map[string]*peer // by id of the service
}

type peer struct {
	last  time.Time // when it replied
	asked bool      // by its own name since, whether it is still connected
}

// hear handles a reply to a call, at the inbox of these endpoints: its last token is the
// peer that was asked, or "all".
func (e *endpoints) hear(m *nats.Msg) {
	s := e.Service
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	if m.Header.Get("Status") != "" {
		delete(s.peers.seen, m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]) // it is gone
		return
	}
	var ping micro.Ping
	if json.Unmarshal(m.Data, &ping) == nil && ping.Metadata[metaDatabase] == string(e.Config.Database) && ping.ID != e.info.ID {
		s.peers.seen[ping.ID] = &peer{last: time.Now()}
	}
}

// watchPeers calls the other processes, and disconnects those that hang while this one is
// the writer.
func (s *Service) watchPeers() {
	call := time.NewTicker(callInterval)
	defer call.Stop()
	for {
		if s.roles.TryLock() { // or the role changes
			e := s.endpoints
			s.roles.Unlock()
			if s.NC.IsConnected() {
				s.callPeers(e)
			}
		}
		select {
		case <-call.C:
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Service) callPeers(e *endpoints) {
	inbox, lapse := e.inbox(), micro.APIPrefix+".PING.lapse"
	ask := func(whom, of string) { _ = s.NC.PublishRequest(whom, inbox+of, nil) } // or it is closed
	var hung []string
	writer := s.OnlyWriter()
	s.peers.mu.Lock()
	for id, p := range s.peers.seen {
		switch silent := time.Since(p.last); {
		case silent > hungAfter && p.asked && writer:
			delete(s.peers.seen, id)
			hung = append(hung, id)
		case silent >= hungAfter-callInterval && !p.asked && writer:
			p.asked = true
			ask(lapse+"."+id, id)
		}
	}
	s.peers.mu.Unlock()
	for _, id := range hung {
		s.Config.Events(observe.PeerHangs{ID: id})
		fill := make([]byte, hungMessage)
		for range hungBytes / hungMessage {
			_ = s.NC.Publish(lapse+"."+id, fill)
		}
	}
	ask(lapse+"."+string(s.Config.Database), "all") // a process may serve many databases
}

// inbox is where replies of peers arrive, with another token.
func (e *endpoints) inbox() string { return peerInbox + e.info.ID + "." }
