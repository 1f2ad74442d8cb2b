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

// peers are the processes of the database that this one has heard of.
type peers struct {
	mu   sync.Mutex
	seen map[string]*peer // by id of the service
}

type peer struct {
	last  time.Time // time of its last reply
	asked bool      // asked by id, since then, whether it is still connected
}

// hear handles a reply to a call, at the inbox of these endpoints: its last token is the
// peer that was asked, or "all".
func (e *endpoints) hear(m *nats.Msg) {
	s := e.Service
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	if m.Header.Get("Status") != "" {
		delete(s.peers.seen, m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]) // no responders: it has disconnected
		return
	}
	var ping micro.Ping
	if json.Unmarshal(m.Data, &ping) == nil && ping.Metadata[metaDatabase] == string(e.Config.Database) && ping.ID != e.info.ID {
		s.peers.seen[ping.ID] = &peer{last: time.Now()}
	}
}

// watchPeers calls the other processes. While this one is the writer, it disconnects
// those that hang.
func (s *Service) watchPeers() {
	call := time.NewTicker(callInterval)
	defer call.Stop()
	for {
		if s.roles.TryLock() { // fails while the role changes
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

// inbox returns the prefix of the subjects at which replies of peers arrive.
func (e *endpoints) inbox() string { return peerInbox + e.info.ID + "." }
