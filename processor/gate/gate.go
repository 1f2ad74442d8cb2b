package gate

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/schema"
)

// How a message goes through a gate. It has two connections, clients and streams, each with an
// inbox of its own, and no state that must survive it:
//
//	client ─► clients: an operation of the list ─► its rules ─► streams: JetStream's API
//	       ◄─ the reply, cut to what the client may see ◄──────┘
//	JetStream ─► the inbox of the client, which its account exports: events go past the gate
//
// A request is passed on only if its subject is in the list of operations (operations.go), its
// body is what that operation takes, and all subjects that it names are inboxes. Everything
// else gets an error of JetStream's form. So a client cannot have JetStream publish where lapse
// or another client listens, which is why a gate exists.
//
// There are three kinds of state, and each may be lost: the calls in flight (calls, later), of which a
// client sees a time-out; what consumers of the gate pull (pulled), renewed by the next pull;
// where consumers deliver (deliveries, under creating), read again from JetStream when it is
// stale. Gates of one queue group share the requests, and nothing depends on which one gets one.
//
// subs exist while both connections do. follow alone makes and ends them: a gate that has lost
// the streams is no member of the group, and the requests go to other gates.

// Gate carries the JetStream requests of clients into the account of the streams, and
// replies to those that clients may not make. JetStream publishes replies and messages
// to any subject that a request names, so a request that names anything but an inbox
// goes no further.
//
// Every process of an account's databases may have a gate. Gates share the requests and no
// state, so all gates of an account have the same databases.
type Gate struct {
	any      bool // databases come and go, see Add
	dbs      atomic.Pointer[[]schema.DatabaseName]
	changing sync.Mutex // held while dbs changes
	oneUser  bool
	clients  *nats.Conn
	streams  *nats.Conn
	inbox    string // in the account of the streams, see relay
	logger   *slog.Logger
	calls    chan struct{} // limits the calls in flight
	pulled   pulled

	creating   sync.Mutex // held while consumers are counted and one is made
	warned     time.Time  // the last warning that the server allows too few
	deliveries sync.Map   // delivery by stream.consumer, see taken
	delivering time.Time  // when deliveries was empty

	ctx  context.Context // ends with Close
	end  context.CancelFunc
	once sync.Once
	done chan struct{} // closed when nothing is subscribed to any more
}

const (
	// maxCalls limits the API calls in flight to JetStream.
	maxCalls = 64
	// callTimeout limits each of them: clients get an error before their own time-out,
	// which is 5 s as a rule. It is longer than the 4 s for which a cluster waits for
	// nodes that do not reply before it lists the consumers of the others.
	callTimeout = 4500 * time.Millisecond

	// Limits of the requests of each kind that wait. The rest is dropped, as by
	// JetStream itself: clients retry.
	maxPassing      = 64 << 10
	maxPassingBytes = 16 << 20
)

// openAgain is the wait after a failed attempt to open the gate.
const openAgain = 5 * time.Second

// group is the queue group in which gates share the requests.
const group = "lapse-gate"

// Options are what a gate is for.
type Options struct {
	// Databases are those that clients may read; AnyDatabase alone for those of Add.
	Databases []schema.DatabaseName
	Logger    *slog.Logger

	// OneUser says that all clients have the same rights, so that none of them needs to
	// be known to edit a consumer.
	OneUser bool
}

// Open opens a gate to the logs of databases: clients is logged in to the account of
// the clients, streams to that of the streams, each with an inbox prefix that
// is not _INBOX. The connections stay the caller's, to be closed after the gate.
// While streams is not connected, other gates do the work.
func Open(clients, streams *nats.Conn, o Options) (*Gate, error) {
	if strings.HasPrefix(streams.NewInbox(), schema.InboxPrefix) {
		return nil, fmt.Errorf("gate: answers to %s> reach clients: connect to the streams with another inbox prefix", schema.InboxPrefix)
	}
	g := &Gate{
		any: slices.Equal(o.Databases, []schema.DatabaseName{AnyDatabase}), oneUser: o.OneUser, clients: clients, streams: streams, inbox: streams.NewInbox(), logger: o.Logger,
		calls: make(chan struct{}, maxCalls), done: make(chan struct{}),
	}
	g.dbs.Store(&o.Databases)
	if g.any {
		g.dbs.Store(new([]schema.DatabaseName))
	}
	if err := g.checkAccounts(); err != nil {
		return nil, err
	}
	g.ctx, g.end = context.WithCancel(context.Background())
	replies, err := streams.Subscribe(g.inbox+".>", g.relay)
	if err != nil {
		g.end()
		return nil, fmt.Errorf("gate: %w", err)
	}
	subs, err := g.subscribe()
	if err == nil {
		err = g.flushClients()
	}
	if err == nil {
		err = g.checkRights(subs)
	}
	if err != nil {
		g.end()
		unsubscribe(append(subs, replies))
		return nil, fmt.Errorf("gate: %w", err)
	}
	go func() {
		g.follow(subs)
		unsubscribe([]*nats.Subscription{replies})
		close(g.done)
	}()
	return g, nil
}

// errOneAccount is the error for accounts between which a gate protects nothing.
var errOneAccount = errors.New("gate: the account of connection gate-clients receives what is published in that of gate-log: use two accounts, and import no stream there but _INBOX.> and _CLIENTS.>")

// checkAccounts returns errOneAccount if clients could see what is published for the log,
// or its API. The gate would also take its own requests for those of clients. It uses a
// subject that both users may use: nobody listens to the flow control of a consumer that
// does not exist.
func (g *Gate) checkAccounts() error {
	name := rand.Text()
	sub, err := g.clients.SubscribeSync("$JS.FC.*." + name)
	if err == nil {
		defer unsubscribe([]*nats.Subscription{sub})
		err = g.flushClients()
	}
	for _, db := range g.databases() {
		if err == nil {
			err = g.streams.Publish("$JS.FC."+db.LogStream()+"."+name, nil)
		}
	}
	if err != nil {
		return fmt.Errorf("gate: %w", err)
	}
	if !g.streams.IsConnected() || g.streams.Flush() != nil || g.flushClients() != nil { // the server has sent it on before it answers
		return nil // a connection is lost: follow sees to that
	}
	if err := eventlog.Refused(g.clients, sub.Subject); err != nil { // it would see nothing
		return fmt.Errorf("gate: gate-clients and gate-log are two users, in two accounts: %w", err)
	}
	if seen, _, err := sub.Pending(); err == nil && seen > 0 {
		return errOneAccount
	}
	return nil
}

// checkRights returns an error if NATS has refused one of the subscriptions, or refuses
// what a reader of a log needs.
func (g *Gate) checkRights(subs []*nats.Subscription) error {
	var subjects []string
	for _, sub := range subs {
		subjects = append(subjects, sub.Subject)
	}
	if err := eventlog.Refused(g.clients, subjects...); err != nil || !g.streams.IsConnected() {
		return err
	}
	var needed []string
	nobody := "." + schema.ServerConsumer + rand.Text()
	for _, db := range g.databases() {
		for _, api := range []string{"CONSUMER.CREATE.", "CONSUMER.INFO.", "CONSUMER.MSG.NEXT."} {
			needed = append(needed, "$JS.API."+api+db.LogStream()+nobody)
		}
		needed = append(needed, "$JS.API.STREAM.INFO."+db.LogStream(), "$JS.ACK."+db.LogStream()+nobody)
	}
	if err := eventlog.CheckRights(g.streams, needed...); err != nil {
		return err
	}
	return eventlog.Refused(g.streams, g.inbox+".>")
}

// flushClients flushes the connection to the clients. It waits while that is lost and
// reconnects.
func (g *Gate) flushClients() error {
	err := g.clients.Flush()
	for errors.Is(err, nats.ErrConnectionClosed) && !g.clients.IsClosed() {
		err = g.clients.Flush()
	}
	return err
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

// databases returns those that clients may read.
func (g *Gate) databases() []schema.DatabaseName { return *g.dbs.Load() }

// Add lets clients read the log of a database, if the gate is one to AnyDatabase.
func (g *Gate) Add(db schema.DatabaseName) {
	g.changing.Lock()
	defer g.changing.Unlock()
	all := append(slices.Clone(g.databases()), db)
	slices.Sort(all)
	g.dbs.Store(&all)
}

// Remove ends what Add began, and forgets consumers.
func (g *Gate) Remove(db schema.DatabaseName) {
	g.changing.Lock()
	defer g.changing.Unlock()
	all := slices.DeleteFunc(slices.Clone(g.databases()), func(other schema.DatabaseName) bool { return other == db })
	g.dbs.Store(&all)
	g.pulled.clear()
	g.deliveries.Clear()
}

// subscribe returns its subscriptions with an error, too, for unsubscribe.
func (g *Gate) subscribe() (subs []*nats.Subscription, err error) {
	add := func(subject, group string, handle nats.MsgHandler) {
		if err != nil {
			return
		}
		var sub *nats.Subscription
		if sub, err = g.clients.QueueSubscribe(subject, group, func(m *nats.Msg) {
			if accepts(m) {
				handle(m)
			}
		}); err == nil {
			subs = append(subs, sub)
			err = sub.SetPendingLimits(maxPassing, maxPassingBytes)
		}
	}
	for _, o := range operations {
		add(o.subject, group, func(m *nats.Msg) {
			if m.Reply != "" {
				o.handle(g, m, o)
			}
		})
	}
	dbs := g.databases()
	if g.any {
		dbs = []schema.DatabaseName{AnyDatabase}
	}
	for _, db := range dbs {
		of := names(db)
		ofLog := func(handle nats.MsgHandler) nats.MsgHandler {
			if db != AnyDatabase {
				return handle
			}
			return func(m *nats.Msg) {
				if g.isLog(strings.Split(m.Subject, ".")[2]) {
					handle(m)
				}
			}
		}
		add(of.Replace("$JS.ACK.{log}.>"), group, ofLog(g.acknowledge))
		add(of.Replace("$JS.FC.{log}.>"), group, ofLog(g.pass))
		add(of.Replace("lapse.{db}.events.>"), group, g.refusePublish)
		// Another gate may be the one that deletes a consumer.
		add(of.Replace("$JS.API.CONSUMER.DELETE.{log}.*"), "", func(m *nats.Msg) {
			g.pulled.remove(consumerOf(m))
			g.deliveries.Delete(consumerOf(m))
		})
	}
	for _, subject := range []string{"$KV.>", "$O.>"} {
		add(subject, group, g.refusePublish)
	}
	return subs, err
}

func unsubscribe(subs []*nats.Subscription) {
	for _, sub := range subs {
		_ = sub.Unsubscribe() // else the connection is closed
	}
}

// follow listens while there is a connection to the streams, until Close.
func (g *Gate) follow(subs []*nats.Subscription) {
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

// change passes a request that changes or deletes a consumer on, unless lapse itself
// reads by it.
func (g *Gate) change(m *nats.Msg, o operation) {
	if isServers(lastToken(m.Subject)) {
		g.fail(m, o, errServerConsumer)
		return
	}
	if strings.HasPrefix(m.Subject, "$JS.API.CONSUMER.DELETE.") {
		g.pulled.remove(consumerOf(m))
	}
	if byImport(m) {
		g.changeOwned(m, o, m.Subject, func(c *server.ConsumerConfig) error { return notOwned(accountOf(m), c) })
		return
	}
	g.call(m, o)
}

// acknowledge forwards an acknowledgement, which may also request the next message.
func (g *Gate) acknowledge(m *nats.Msg) {
	_, rest, _ := strings.Cut(strings.TrimPrefix(m.Subject, "$JS.ACK."), ".") // without the stream
	switch {
	case isServers(rest):
	case byImport(m) && bytes.HasPrefix(m.Data, server.AckNext):
		g.fail(m, operation{}, errNext)
	default:
		g.pass(m)
	}
}

// call asks JetStream and hands its reply back. JetStream's API is itself an import of
// the account, and NATS does not export again what comes out of an import, so the
// reply cannot go the way that messages go.
func (g *Gate) call(m *nats.Msg, o operation) {
	g.later(m, o, func(ctx context.Context) ([]byte, error) {
		if o.byConsumer {
			if there, err := g.exists(ctx, o.stream(m), lastToken(m.Subject)); err != nil {
				return nil, err
			} else if !there {
				return json.Marshal(server.ApiResponse{Type: o.reply, Error: server.NewJSConsumerNotFoundError()})
			}
		}
		r, err := g.ask(ctx, &nats.Msg{Subject: m.Subject, Header: apiHeader(m), Data: m.Data})
		if err != nil {
			return nil, err
		}
		return shown(r.Data, senderOf(m))
	})
}

// later publishes what reply returns, without making the requests after m wait. nil
// stands for no reply.
func (g *Gate) later(m *nats.Msg, o operation, reply func(context.Context) ([]byte, error)) {
	select {
	case g.calls <- struct{}{}:
	case <-g.ctx.Done():
		return
	}
	go func() {
		defer func() { <-g.calls }()
		ctx, cancel := context.WithTimeout(g.ctx, callTimeout)
		defer cancel()
		body, err := reply(ctx)
		if err == nil && body != nil {
			err = g.clients.Publish(m.Reply, body)
		}
		if err != nil {
			g.failCall(m, o, len(body), err)
		}
	}()
}

// failCall replies that JetStream gave no reply, or one of size bytes that no message
// can have.
func (g *Gate) failCall(m *nats.Msg, o operation, size int, err error) {
	e := server.NewJSClusterNotAvailError()
	switch {
	case g.ctx.Err() != nil || errors.Is(err, nats.ErrConnectionClosed):
		return // another gate gets the repeat
	case errors.Is(err, nats.ErrMaxPayload):
		e = server.NewJSBadRequestError()
		e.Description = fmt.Sprintf("the reply has %d bytes, more than a message can have: ask for one consumer by its name, or for fewer subjects", size)
	default:
		g.logger.Warn("no reply from JetStream", "subject", m.Subject, "err", err)
	}
	g.answer(m, server.ApiResponse{Type: o.reply, Error: e})
}

// ask sends a request to JetStream and waits for the reply.
func (g *Gate) ask(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	return g.streams.RequestMsgWithContext(ctx, m)
}

// pass forwards a message as it is. JetStream replies to the inbox of a client past the
// gate, and to another account through it.
func (g *Gate) pass(m *nats.Msg) {
	reply := streamsInbox(m.Reply)
	if byImport(m) {
		reply = g.inbox + "." + m.Reply
	}
	err := g.streams.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: reply, Header: apiHeader(m), Data: m.Data})
	if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		g.logger.Warn("a message to JetStream was lost", "subject", m.Subject, "err", err)
	}
}

// answer publishes v as JSON to the inbox of a request.
func (g *Gate) answer(m *nats.Msg, v any) {
	if body, err := json.Marshal(v); err == nil {
		g.publish(&nats.Msg{Subject: m.Reply, Data: body})
	}
}

// publish sends a message to the reply subject of a request.
func (g *Gate) publish(m *nats.Msg) {
	if schema.IsReply(m.Subject) {
		_ = g.clients.PublishMsg(m) // else the connection is closed
	}
}

// apiHeader keeps the headers that the JetStream API asks clients for, and those by which
// a mirror says in a reply to flow control what it has. The others either mean nothing to
// it or ask the server for something, such as tracing the message.
func apiHeader(m *nats.Msg) (kept nats.Header) {
	for _, name := range []string{server.JSRequiredApiLevel, server.JSLastConsumerSeq, server.JSLastStreamSeq} {
		if v := m.Header.Get(name); v != "" {
			if kept == nil {
				kept = nats.Header{}
			}
			kept.Set(name, v)
		}
	}
	return kept
}
