package embedded

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// inboxes is what a client's reply and deliver subjects start with. Nothing in
// the account of the streams listens there.
const inboxes = "_INBOX."

// gate carries the JetStream requests of clients into the account of the
// streams. JetStream answers, and delivers, to any subject that a request
// names, so one that names anything but an inbox goes no further.
type gate struct {
	db      schema.DatabaseName
	clients *nats.Conn
	streams *nats.Conn
	logger  *slog.Logger
	calls   chan struct{} // bounds the calls under way
	pulled  pulled
}

// maxCalls bounds the API calls that wait for JetStream at a time, callTimeout
// each of them. Clients give up after 5 s by themselves.
const (
	maxCalls    = 64
	callTimeout = 5 * time.Second

	// What may wait of each kind of request. The rest is dropped, as JetStream
	// itself does: clients ask again.
	maxPassing      = 64 << 10
	maxPassingBytes = 16 << 20
)

func (s *Server) openGate(o *Options) (_ *gate, err error) {
	g := &gate{db: o.Database, logger: o.Logger, calls: make(chan struct{}, maxCalls)}
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
	log := o.Database.LogStream()
	for subject, handle := range map[string]nats.MsgHandler{
		"$JS.API.STREAM.NAMES":                          g.names,
		"$JS.API.CONSUMER.CREATE." + log:                g.create,
		"$JS.API.CONSUMER.CREATE." + log + ".>":         g.create,
		"$JS.API.CONSUMER.DURABLE.CREATE." + log + ".*": g.create,
		"$JS.API.CONSUMER.INFO." + log + ".*":           g.call,
		"$JS.API.CONSUMER.DELETE." + log + ".*":         g.delete,
		"$JS.API.CONSUMER.NAMES." + log:                 g.call,
		"$JS.API.CONSUMER.LIST." + log:                  g.call,
		"$JS.API.CONSUMER.MSG.NEXT." + log + ".*":       g.pull,
		"$JS.ACK." + log + ".>":                         g.pass,
		"$JS.FC." + log + ".>":                          g.pass,
	} {
		var sub *nats.Subscription
		if sub, err = g.clients.Subscribe(subject, handle); err == nil {
			err = sub.SetPendingLimits(maxPassing, maxPassingBytes)
		}
		if err != nil {
			return nil, err
		}
	}
	return g, g.clients.Flush()
}

func (g *gate) close() {
	if g.clients != nil {
		g.clients.Close()
	}
	if g.streams != nil {
		g.streams.Close()
	}
}

// create lets a consumer through that is pulled from or delivers to an inbox.
// The request is read with the server's own type, so that the two cannot
// understand it differently, and passed on as it came. What is not exactly one
// JSON value stays here: the server reads several, one over the other.
func (g *gate) create(m *nats.Msg) {
	var r server.CreateConsumerRequest
	var refusal *server.ApiError
	if err := json.Unmarshal(m.Data, &r); err != nil {
		refusal = server.NewJSInvalidJSONError(err)
	} else if to := r.Config.DeliverSubject; to != "" && !strings.HasPrefix(to, inboxes) {
		e := *server.NewJSConsumerInvalidDeliverSubjectError()
		e.Description = "deliver_subject must begin with " + inboxes
		refusal = &e
	}
	if refusal == nil {
		g.call(m)
		return
	}
	g.answer(m, &server.JSApiConsumerCreateResponse{ApiResponse: server.ApiResponse{
		Type: server.JSApiConsumerCreateResponseType, Error: refusal}})
}

// delete forgets that the consumer was there.
func (g *gate) delete(m *nats.Msg) {
	g.pulled.forget(lastToken(m.Subject))
	g.call(m)
}

// call asks JetStream and hands its answer back. JetStream's API is itself an
// import of the account, and what comes out of an import is not exported
// again, so the answer cannot take the way that messages take.
func (g *gate) call(m *nats.Msg) {
	if !strings.HasPrefix(m.Reply, inboxes) {
		return
	}
	g.calls <- struct{}{}
	go func() {
		defer func() { <-g.calls }()
		r, err := g.streams.RequestMsg(&nats.Msg{Subject: m.Subject, Header: apiHeader(m), Data: m.Data}, callTimeout)
		switch {
		case err == nil:
			err = g.clients.Publish(m.Reply, r.Data)
		case errors.Is(err, nats.ErrConnectionClosed):
			return
		}
		if err != nil {
			g.logger.Warn("no answer to a JetStream request", "subject", m.Subject, "err", err)
		}
	}()
}

// pass hands a message on as it is.
func (g *gate) pass(m *nats.Msg) {
	if m.Reply != "" && !strings.HasPrefix(m.Reply, inboxes) {
		return
	}
	err := g.streams.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: m.Reply, Header: apiHeader(m), Data: m.Data})
	if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		g.logger.Warn("a message to JetStream was lost", "subject", m.Subject, "err", err)
	}
}

func (g *gate) answer(m *nats.Msg, v any) {
	body, err := json.Marshal(v)
	if err != nil || !strings.HasPrefix(m.Reply, inboxes) {
		return
	}
	g.clients.Publish(m.Reply, body)
}

// apiHeader keeps the one header that the JetStream API asks clients for. The
// others either mean nothing to it or ask the server for something, such as
// tracing the message.
func apiHeader(m *nats.Msg) nats.Header {
	const level = "Nats-Required-Api-Level"
	if v := m.Header.Get(level); v != "" {
		return nats.Header{level: {v}}
	}
	return nil
}
