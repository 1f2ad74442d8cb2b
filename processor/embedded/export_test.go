package embedded

import "github.com/lapsedb/lapse/schema"

// OpenGate opens one more gate, as another process of the same database would.
func (s *Server) OpenGate() (end func(), err error) {
	g, err := s.openGate(&Options{Databases: []schema.DatabaseName{"main"}, Logger: s.log})
	if err != nil {
		return nil, err
	}
	return g.close, nil
}
