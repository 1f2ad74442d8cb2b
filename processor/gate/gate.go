package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/schema"
)

// inboxes starts the reply and deliver subjects of clients. Nothing in the account of the
// streams listens there.
const inboxes = "_INBOX."

// Gate carries the JetStream requests of clients into the account of the
// streams. JetStream answers, and delivers, to any subject that a request
// names, so one that names anything but an inbox goes no further.
//
// Every process of a database may have one: they share the requests, and none
// remembers anything that another needs to know.
type Gate struct {
	db      schema.DatabaseName
	clients *nats.Conn
	streams *nats.Conn
	logger  *slog.Logger
	calls   chan struct{} // bounds the calls under way
	pulled  pulled

	creating sync.Mutex // held while consumers are counted and one is made
	warned   time.Time  // when it was said last that the server allows too few

	ctx  context.Context // ends with Close
	end  context.CancelFunc
	once sync.Once
	done chan struct{} // closed when nothing is subscribed to any more
}

// maxCalls bounds the API calls that wait for JetStream at a time, callTimeout
// each of them. Clients give up after 5 s by themselves.
const (
	maxCalls    = 64
	callTimeout = 5 * time.Second

	// How many requests of each kind may wait. The rest is dropped, as by JetStream
	// itself: clients retry.
	maxPassing      = 64 << 10
	maxPassingBytes = 16 << 20
)

// openAgain is the wait after a failed attempt to open the gate.
const openAgain = 5 * time.Second

// group is the queue group in which gates share the requests.
const group = "lapse-gate"

// Open opens a gate to the log of db: clients is logged in to the account of
// the clients, streams to that of the streams, each with an inbox prefix that
// is not _INBOX. The connections stay the caller's, to be closed after the gate.
// While streams is not connected, other gates do the work.
func Open(clients, streams *nats.Conn, db schema.DatabaseName, logger *slog.Logger) (*Gate, error) {
	if strings.HasPrefix(streams.NewInbox(), inboxes) {
		return nil, fmt.Errorf("gate: answers to %s> reach clients: connect to the streams with another inbox prefix", inboxes)
	}
	g := &Gate{
		db: db, clients: clients, streams: streams, logger: logger,
		calls: make(chan struct{}, maxCalls), done: make(chan struct{}),
	}
	g.ctx, g.end = context.WithCancel(context.Background())
	subs, err := g.subscribe()
	if err == nil {
		err = clients.Flush()
	}
	if err != nil {
		g.end()
		unsubscribe(subs)
		return nil, fmt.Errorf("gate: %w", err)
	}
	go g.follow(subs)
	return g, nil
}

// Close ends the gate's work and returns when it has ended.
func (g *Gate) Close() {
	g.once.Do(func() {
		g.end()
		<-g.done
		for range maxCalls { // and keeps them, so that nothing begins any more
			g.calls <- struct{}{}
		}
		g.creating.Lock() // what waits finds the context ended
		defer g.creating.Unlock()
		// From now on requests go to other gates.
		_ = g.clients.FlushTimeout(time.Second) // else the connection is gone, which does the same
	})
}

// subscribe also returns, with an error, what is to be ended.
func (g *Gate) subscribe() (subs []*nats.Subscription, err error) {
	log := g.db.LogStream()
	add := func(subject, group string, handle nats.MsgHandler) {
		if err != nil {
			return
		}
		var sub *nats.Subscription
		if sub, err = g.clients.QueueSubscribe(subject, group, handle); err == nil {
			subs = append(subs, sub)
			err = sub.SetPendingLimits(maxPassing, maxPassingBytes)
		}
	}
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
		"$JS.API.CONSUMER.UNPIN." + log + ".*":          g.call,
		"$JS.ACK." + log + ".>":                         g.acknowledge,
		"$JS.FC." + log + ".>":                          g.pass,
	} {
		add(subject, group, handle)
	}
	// Another gate may be the one that deletes it.
	add("$JS.API.CONSUMER.DELETE."+log+".*", "", func(m *nats.Msg) { g.pulled.forget(lastToken(m.Subject)) })
	return subs, err
}

func unsubscribe(subs []*nats.Subscription) {
	for _, sub := range subs {
		_ = sub.Unsubscribe() // else the connection is closed
	}
}

// follow listens while there is a connection to the streams, until Close.
func (g *Gate) follow(subs []*nats.Subscription) {
	defer close(g.done)
	defer func() { unsubscribe(subs) }()
	changed := g.streams.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer g.streams.RemoveStatusListener(changed)
	for {
		var again <-chan time.Time
		switch connected := g.streams.IsConnected(); {
		case !connected:
			unsubscribe(subs)
			subs = nil
		case subs == nil:
			var err error
			if subs, err = g.subscribe(); err != nil {
				unsubscribe(subs)
				subs, again = nil, time.After(openAgain)
				g.logger.Error("the gate is shut: clients cannot read the log through it", "err", err, "again", openAgain)
			}
		}
		select {
		case <-changed:
		case <-again:
		case <-g.ctx.Done():
			return
		}
	}
}

// delete forgets that the consumer was there. Those by which lapse itself reads
// are not for clients to delete.
func (g *Gate) delete(m *nats.Msg) {
	name := lastToken(m.Subject)
	if ours(name) {
		g.answer(m, &server.JSApiConsumerDeleteResponse{ApiResponse: server.ApiResponse{
			Type: server.JSApiConsumerDeleteResponseType, Error: badRequest(errOurs)}})
		return
	}
	g.pulled.forget(name)
	g.call(m)
}

// acknowledge forwards an acknowledgement, which may ask for the next message, too.
func (g *Gate) acknowledge(m *nats.Msg) {
	if of, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, "$JS.ACK."+g.db.LogStream()+"."), "."); !ours(of) {
		g.pass(m)
	}
}

// errOurs refuses clients a consumer of lapse.
var errOurs = errors.New("consumers whose names begin with " + schema.ServerConsumer + " are those by which lapse itself reads")

// call asks JetStream and hands its answer back. JetStream's API is itself an
// import of the account, and what comes out of an import is not exported
// again, so the answer cannot take the way that messages take.
func (g *Gate) call(m *nats.Msg) {
	if !strings.HasPrefix(m.Reply, inboxes) {
		return
	}
	select {
	case g.calls <- struct{}{}:
	case <-g.ctx.Done():
		return
	}
	go func() {
		defer func() { <-g.calls }()
		ctx, cancel := context.WithTimeout(g.ctx, callTimeout)
		defer cancel()
		r, err := g.ask(ctx, &nats.Msg{Subject: m.Subject, Header: apiHeader(m), Data: m.Data})
		if err == nil {
			err = g.clients.Publish(m.Reply, r.Data)
		}
		if errors.Is(err, nats.ErrMaxPayload) {
			g.answer(m, &server.ApiResponse{Error: badRequest(fmt.Errorf(
				"the answer has %d bytes, more than a message may have: ask for one consumer at a time, by its name", len(r.Data)))})
			return
		}
		g.unanswered(m, err)
	}()
}

// unanswered logs that a client got no reply.
func (g *Gate) unanswered(m *nats.Msg, err error) {
	if err != nil && g.ctx.Err() == nil && !errors.Is(err, nats.ErrConnectionClosed) {
		g.logger.Warn("no answer to a JetStream request", "subject", m.Subject, "err", err)
	}
}

// ask sends a request to JetStream and waits for the answer.
func (g *Gate) ask(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	return g.streams.RequestMsgWithContext(ctx, m)
}

// pass forwards a message as it is.
func (g *Gate) pass(m *nats.Msg) {
	if m.Reply != "" && !strings.HasPrefix(m.Reply, inboxes) {
		return
	}
	err := g.streams.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: m.Reply, Header: apiHeader(m), Data: m.Data})
	if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		g.logger.Warn("a message to JetStream was lost", "subject", m.Subject, "err", err)
	}
}

func (g *Gate) answer(m *nats.Msg, v any) {
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
