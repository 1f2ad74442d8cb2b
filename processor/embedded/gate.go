package embedded

import (
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/gate"
)

// openGate is a gate with its connections.
type openGate struct {
	*gate.Gate
	streams, clients *nats.Conn
}

func (s *Server) openGate(o *Options) (_ *openGate, err error) {
	g := new(openGate)
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if g.streams, err = s.connect(userGateLog, s.who.GateLog, "_GATE", nil); err != nil {
		return nil, err
	}
	if g.clients, err = s.connect(userGateClients, s.who.GateClients, "_GATE", nil); err != nil {
		return nil, err
	}
	g.Gate, err = gate.Open(g.clients, g.streams, o.Databases, o.Logger)
	return g, err
}

func (g *openGate) close() {
	if g.Gate != nil {
		g.Close()
	}
	if g.clients != nil {
		g.clients.Close()
	}
	if g.streams != nil {
		g.streams.Close()
	}
}
