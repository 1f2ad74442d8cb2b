package gate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// What clients see of streams. The gate answers for the two streams of each database that
// clients may know of, as if there were no others: the lease and the snapshots of the same
// account are none of their business. Answers are shortened to what a client may know:
// streams show the subjects under which messages are stored, not those on which the log
// listens.

// stores returns the subjects of the messages in a stream that clients may know of, ""
// for any other stream.
func (g *Gate) stores(stream string) string {
	switch db, there := g.databaseOf(stream); {
	case !there:
		return ""
	case stream == db.LogStream():
		return db.Events() + ">"
	default:
		return db.Mutations() + ">"
	}
}

// databaseOf returns the database whose log or mutations a stream has.
func (g *Gate) databaseOf(stream string) (_ schema.DatabaseName, there bool) {
	db, _, ok := schema.ParseStream(stream)
	return db, ok && slices.Contains(g.databases(), db)
}

// isLog reports whether a stream is the log of a database.
func (g *Gate) isLog(stream string) bool {
	db, there := g.databaseOf(stream)
	return there && stream == db.LogStream()
}

// logs names the logs, in a message.
func (g *Gate) logs() string {
	dbs := g.databases()
	if len(dbs) > 3 || g.any {
		return "LAPSE_<database>"
	}
	names := make([]string, len(dbs))
	for i, db := range dbs {
		names[i] = db.LogStream()
	}
	return strings.Join(names, " or ")
}

// streamsOf returns the streams that store a subject, all of them for "". The server's
// own answer would go by the subjects that the log listens on.
func (g *Gate) streamsOf(subject string) (names []string) {
	for _, db := range g.databases() {
		for _, name := range []string{db.LogStream(), db.MutationStream()} {
			if subject == "" || server.SubjectsCollide(subject, g.stores(name)) {
				names = append(names, name)
			}
		}
	}
	return names
}

// names replies with the names of streams: client libraries look up the stream of a
// subject that way.
func (g *Gate) names(m *nats.Msg, o operation) {
	names, page := g.page(m, server.JSApiNamesLimit)
	g.answer(m, &server.JSApiStreamNamesResponse{ApiResponse: server.ApiResponse{Type: o.reply}, ApiPaged: page, Streams: names})
}

// page returns the streams that a request for names or infos asks for, up to a limit.
func (g *Gate) page(m *nats.Msg, limit int) ([]string, server.ApiPaged) {
	var q server.JSApiStreamNamesRequest // JSApiStreamListRequest has the same fields
	_ = json.Unmarshal(m.Data, &q)       // an empty request asks for all
	all := g.streamsOf(q.Subject)
	from := min(max(q.Offset, 0), len(all))
	return all[from:min(from+limit, len(all))], server.ApiPaged{Total: len(all), Offset: q.Offset, Limit: limit}
}

// list replies with the infos of streams.
func (g *Gate) list(m *nats.Msg, o operation) {
	g.later(m, o, func(ctx context.Context) ([]byte, error) {
		names, page := g.page(m, server.JSApiListLimit)
		r := &server.JSApiStreamListResponse{ApiResponse: server.ApiResponse{Type: o.reply}, ApiPaged: page, Streams: []*server.StreamInfo{}}
		for _, name := range names {
			info, err := g.streamInfo(ctx, name, nil)
			if err != nil {
				return nil, err
			} else if info.Error != nil {
				r.Missing = append(r.Missing, name)
				continue
			}
			r.Streams = append(r.Streams, info.StreamInfo)
		}
		return json.Marshal(r)
	})
}

// stream replies with the info of a stream.
func (g *Gate) stream(m *nats.Msg, o operation) {
	name := o.stream(m)
	if g.stores(name) == "" {
		g.refuse(m, o)
		return
	}
	g.later(m, o, func(ctx context.Context) ([]byte, error) {
		r, err := g.streamInfo(ctx, name, m.Data)
		if err != nil {
			return nil, err
		}
		return json.Marshal(r)
	})
}

// streamInfo returns the info of a stream as clients may see it: the subject that the
// log listens on is a secret, since whoever knows it can have NATS publish there. The
// server's types also drop fields that they do not know.
func (g *Gate) streamInfo(ctx context.Context, name string, body []byte) (r server.JSApiStreamInfoResponse, err error) {
	if err := g.askJSON(ctx, "$JS.API.STREAM.INFO."+name, body, &r); err != nil || r.StreamInfo == nil {
		return r, err
	}
	r.Config.Subjects = []string{g.stores(name)}
	r.Config.SubjectTransform = nil
	r.Config.RePublish = nil
	return r, nil
}

// direct passes a direct get on if the stream allows any: otherwise nobody would reply.
func (g *Gate) direct(m *nats.Msg, o operation) {
	if !g.isLog(o.stream(m)) {
		g.refuse(m, o)
		return
	}
	var q server.JSApiMsgGetRequest
	if byImport(m) && json.Unmarshal(m.Data, &q) == nil && (q.Batch > 0 || len(q.MultiLastFor) > 0) {
		g.fail(m, o, errMany)
		return
	}
	g.later(m, o, func(ctx context.Context) ([]byte, error) {
		switch r, err := g.streamInfo(ctx, o.stream(m), nil); {
		case err != nil:
			return nil, err
		case r.StreamInfo == nil || !r.Config.AllowDirect:
			g.fail(m, o, errors.New("the stream has no direct get: use $JS.API.STREAM.MSG.GET, or its consumers"))
			return nil, nil
		}
		g.pass(m)
		return nil, nil
	})
}
