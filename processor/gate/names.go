package gate

import (
	"encoding/json"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// names answers which streams there are, all of them or those that store a
// subject: client libraries look up the stream of a subject that way. The
// server cannot tell, it would go by the subjects that the log listens on.
func (g *Gate) names(m *nats.Msg) {
	var q server.JSApiStreamNamesRequest
	json.Unmarshal(m.Data, &q) // an empty request asks for all
	all := []string{g.db.LogStream(), g.db.MutationStream()}
	if q.Subject != "" {
		all = nil
		if server.SubjectsCollide(q.Subject, g.db.Events()+">") {
			all = append(all, g.db.LogStream())
		}
		if server.SubjectsCollide(q.Subject, g.db.Mutations()+">") {
			all = append(all, g.db.MutationStream())
		}
	}
	r := &server.JSApiStreamNamesResponse{
		ApiResponse: server.ApiResponse{Type: server.JSApiStreamNamesResponseType},
		ApiPaged:    server.ApiPaged{Total: len(all), Offset: q.Offset, Limit: server.JSApiNamesLimit},
	}
	r.Streams = all[min(max(q.Offset, 0), len(all)):]
	g.answer(m, r)
}
