package embedded

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/gate"
)

// The connections that lapse makes to its own server, each as a user with its own rights,
// through pipes in memory. They have no TLS and no port, so a firewall or a full table of
// sockets does not part lapse from its log.

// ConnectLog connects to the account that has the streams, with all rights in it. Its
// inboxes have their own prefix, since messages to _INBOX.> there reach clients.
//
// The connection reconnects for ever; options given here come last and win.
func (s *Server) ConnectLog(opts ...nats.Option) (*nats.Conn, error) {
	return s.connect(userProcessor, s.who.Processor, "_PROCESSOR."+rand.Text(), opts)
}

// ConnectService connects to the clients' account, to serve requests: it may
// subscribe to lapse.<db>.api.> and $SRV.>, and publish to inboxes and $SRV.> only, so
// a reply goes to an inbox or nowhere.
//
// The connection reconnects for ever; options given here come last and win.
func (s *Server) ConnectService(opts ...nats.Option) (*nats.Conn, error) {
	return s.connect(userService, s.who.Service, "_SERVICE."+rand.Text(), opts)
}

// ConnectClient connects as a client without credentials does, also if clients have to log
// in.
//
// The connection reconnects for ever; options given here come last and win.
func (s *Server) ConnectClient(opts ...nats.Option) (*nats.Conn, error) {
	return s.connect(userClient, s.who.Client, nats.InboxPrefix+rand.Text(), opts)
}

// openReplies makes NATS subscribe to the replies that cross from the streams' account to
// that of clients. NATS does so at the first request that crosses, and loses the replies
// to concurrent ones: the publishers of mutations would get no acknowledgement.
func (s *Server) openReplies() error {
	nc, err := s.ConnectClient()
	if err != nil {
		return err
	}
	defer nc.Close()
	if _, err := nc.Request("$JS.API.INFO", nil, 10*time.Second); err != nil {
		return fmt.Errorf("the embedded NATS server does not answer: %w: start again", err)
	}
	return nil
}

// connect connects as one of lapse's users. The prefixes of inboxes differ by user: the
// accounts export replies to some of them only, and an operator who looks at subscriptions
// sees whose they are.
func (s *Server) connect(user, password, inbox string, opts []nats.Option) (*nats.Conn, error) {
	nc, err := nats.Connect(nats.DefaultURL, append([]nats.Option{
		// Pipes carry as many messages a second as loopback TCP, with half the
		// latency of a request (13 against 29 us for an append).
		nats.InProcessServer(&inProcess{Server: s.nats}),
		nats.Name("lapse " + user),
		nats.UserInfo(user, password),
		nats.CustomInboxPrefix(inbox),
		nats.Timeout(10 * time.Second), // there is no other server, and a busy machine takes more than 2 s
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			// A slow consumer of ours gets again what it missed.
			if !errors.Is(err, nats.ErrSlowConsumer) {
				s.log.Warn("nats: "+err.Error(), "user", user)
			}
		}),
	}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the embedded NATS server as %s: %w", user, err)
	}
	return nc, nil
}

// openGate opens a gate with its connections.
func (s *Server) openGate(o *Options) error {
	streams, err := s.connect(userGateLog, s.who.GateLog, "_GATE", nil)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, streams.Close)
	clients, err := s.connect(userGateClients, s.who.GateClients, "_GATE", nil)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, clients.Close)
	s.gate, err = gate.Open(clients, streams, gate.Options{Databases: o.Databases, Logger: o.Logger, OneUser: true})
	if err == nil {
		s.closers = append(s.closers, s.gate.Close)
	}
	return err
}
