package embedded

import "github.com/lapsedb/lapse/processor/gate"

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
	g, err := gate.Open(clients, streams, o.Databases, o.Logger)
	if err == nil {
		s.closers = append(s.closers, g.Close)
	}
	return err
}
