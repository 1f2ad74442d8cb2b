package embedded

import "github.com/lapsedb/lapse/processor/gate"

// openGate opens a gate with its connections, until end is called.
func (s *Server) openGate(o *Options) (end func(), err error) {
	streams, err := s.connect(userGateLog, s.who.GateLog, "_GATE", nil)
	if err != nil {
		return nil, err
	}
	clients, err := s.connect(userGateClients, s.who.GateClients, "_GATE", nil)
	if err != nil {
		streams.Close()
		return nil, err
	}
	g, err := gate.Open(clients, streams, o.Databases, o.Logger)
	end = func() {
		if g != nil {
			g.Close()
		}
		clients.Close()
		streams.Close()
	}
	if err != nil {
		end()
	}
	return end, err
}
