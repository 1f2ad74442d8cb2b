package gate_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const log = "LAPSE_main"

var options = gate.Options{Databases: []schema.DatabaseName{"main"}, Logger: slog.New(slog.DiscardHandler)}

// newServer starts a server with the two accounts and an empty log. Package embedded
// tests what the gate refuses.
func newServer(t *testing.T) *server.Server {
	t.Helper()
	s := start(t, `accounts {
		LAPSE { jetstream: enabled, users: [{user: streams, password: streams}], exports: [{stream: "_INBOX.>"}, {service: "$JS.API.INFO"}] }
		CLIENTS { users: [{user: clients, password: clients}], imports: [
			{stream: {account: LAPSE, subject: "_INBOX.>"}}, {service: {account: LAPSE, subject: "$JS.API.INFO"}}] }
	}`)
	js := jetStream(t, connect(t, s, "streams"))
	must(t)(js.CreateStream(ctx(t), jetstream.StreamConfig{Name: log, Subjects: []string{"lapse.main.events.>"}}))
	return s
}

// start starts a server with a configuration.
func start(t *testing.T, config string) *server.Server {
	t.Helper()
	o := harness.NATSOptions(t.TempDir())
	check(t, o.ProcessConfigString(config))
	return harness.StartNATS(t, o)
}

func connect(t *testing.T, s *server.Server, user string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return harness.Dial(t, s.ClientURL(), append([]nats.Option{nats.UserInfo(user, user), nats.Name(user), nats.MaxReconnects(-1)}, opts...)...)
}

// open opens a gate and returns its connection to the streams, too.
func open(t *testing.T, s *server.Server, opts ...nats.Option) (*gate.Gate, *nats.Conn) {
	t.Helper()
	streams := connect(t, s, "streams", append(opts, nats.CustomInboxPrefix("_GATE"))...)
	g, err := gate.Open(connect(t, s, "clients"), streams, options)
	check(t, err)
	t.Cleanup(g.Close)
	return g, streams
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return c
}

// TestOpenRefusesClientInboxPrefix: Open refuses a streams connection with inboxes below
// _INBOX.>, where clients could read the replies.
func TestOpenRefusesClientInboxPrefix(t *testing.T) {
	s := newServer(t)
	_, err := gate.Open(connect(t, s, "clients"), connect(t, s, "streams"), options)
	if err == nil || !strings.Contains(err.Error(), "inbox prefix") {
		t.Error(err)
	}
}

// TestOpenRefusesOpenAccounts: Open refuses connections of which the clients' one sees what
// is published in the account of the streams.
func TestOpenRefusesOpenAccounts(t *testing.T) {
	for name, config := range map[string]string{
		"one account": `accounts { BOTH { users: [{user: streams, password: streams}, {user: clients, password: clients}] } }`,
		"a stream of all": `accounts {
			LAPSE { users: [{user: streams, password: streams}], exports: [{stream: ">"}] }
			CLIENTS { users: [{user: clients, password: clients}], imports: [{stream: {account: LAPSE, subject: ">"}}] }
		}`,
	} {
		s := start(t, config)
		_, err := gate.Open(connect(t, s, "clients"), connect(t, s, "streams", nats.CustomInboxPrefix("_GATE")), options)
		if err == nil || !strings.Contains(err.Error(), "use two accounts") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestClose: a closed gate answers nothing, and its connections stay open.
func TestClose(t *testing.T) {
	s := newServer(t)
	client := connect(t, s, "clients")
	first, streams := open(t, s)
	second, _ := open(t, s)
	names := func() error {
		_, err := client.Request("$JS.API.STREAM.NAMES", nil, 30*time.Second)
		return err
	}
	for _, g := range []*gate.Gate{first, second} {
		for range 20 {
			check(t, names())
		}
		g.Close()
	}
	if err := names(); !errors.Is(err, nats.ErrNoResponders) {
		t.Error(err)
	}
	if !streams.IsConnected() {
		t.Error("the connection of the caller is closed")
	}
}

type dialer func(network, address string) (net.Conn, error)

func (d dialer) Dial(network, address string) (net.Conn, error) { return d(network, address) }

// losing is a connection that closes at its next PING if lose is set.
type losing struct {
	net.Conn
	lose *atomic.Bool
}

func (c losing) Write(p []byte) (int, error) {
	if strings.HasSuffix(string(p), "PING\r\n") && c.lose.Swap(false) {
		return 0, c.Close()
	}
	return c.Conn.Write(p)
}

// TestClientsLostWhileOpening: a gate that loses the connection to its clients while it
// opens works after the reconnect.
func TestClientsLostWhileOpening(t *testing.T) {
	s := newServer(t)
	var lose atomic.Bool
	clients := connect(t, s, "clients", nats.ReconnectWait(10*time.Millisecond), nats.SetCustomDialer(dialer(func(network, address string) (net.Conn, error) {
		c, err := net.Dial(network, address)
		return losing{c, &lose}, err
	})))
	lose.Store(true)
	g, err := gate.Open(clients, connect(t, s, "streams", nats.CustomInboxPrefix("_GATE")), options)
	if err != nil || lose.Load() {
		t.Fatal(err, lose.Load())
	}
	t.Cleanup(g.Close)
	must(t)(connect(t, s, "clients").Request("$JS.API.STREAM.NAMES", nil, 30*time.Second))
}

// TestGateWithoutStreamsConnection: a gate without a connection to the streams leaves the requests to
// other gates, and accepts them again after the reconnect.
func TestGateWithoutStreamsConnection(t *testing.T) {
	s := newServer(t)
	client := connect(t, s, "clients")
	var away atomic.Bool
	_, streams := open(t, s, nats.ReconnectWait(10*time.Millisecond), nats.SetCustomDialer(dialer(func(network, address string) (net.Conn, error) {
		if away.Load() {
			return nil, errors.New("away")
		}
		return net.Dial(network, address)
	})))
	js := jetStream(t, client)
	back := streams.StatusChanged(nats.CONNECTED)
	away.Store(true)
	id, err := streams.GetClientID()
	check(t, err)
	check(t, s.DisconnectClientByID(id))
	shut := func() bool {
		// A request in flight when the gate shut is never answered.
		_, err := client.Request("$JS.API.CONSUMER.LIST."+log, nil, 200*time.Millisecond)
		return errors.Is(err, nats.ErrNoResponders)
	}
	for end := time.Now().Add(30 * time.Second); !shut(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the gate accepts requests that it cannot pass on")
		}
	}
	open(t, s)
	must(t)(js.CreateConsumer(ctx(t), log, jetstream.ConsumerConfig{Durable: "reader"}))
	away.Store(false)
	<-back
	for n := range 20 {
		if _, err := js.Consumer(ctx(t), log, "reader"); err != nil {
			t.Fatal(n, err)
		}
	}
}

// TestDeletedByAnotherGate: each gate caches the consumers that it looked up, and forgets
// one that another gate deletes.
func TestDeletedByAnotherGate(t *testing.T) {
	s := newServer(t)
	client := connect(t, s, "clients")
	for range 4 {
		open(t, s)
	}
	js := jetStream(t, client)
	pull := func(name string) (status string) {
		m, err := client.Request("$JS.API.CONSUMER.MSG.NEXT."+log+"."+name, []byte(`{"batch":1,"expires":50000000}`), 30*time.Second)
		if errors.Is(err, nats.ErrNoResponders) {
			return "503"
		} else if err != nil {
			t.Fatal(err)
		}
		return m.Header.Get("Status")
	}
	for n := range 10 {
		name := fmt.Sprint("reader", n)
		must(t)(js.CreateConsumer(ctx(t), log, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy}))
		for range 8 { // so that every gate is likely to have looked it up
			if got := pull(name); got != "408" && got != "404" {
				t.Fatalf("there is nothing to pull, and the answer is %q", got)
			}
		}
		check(t, js.DeleteConsumer(ctx(t), log, name))
		for range 4 {
			if got := pull(name); got != "503" {
				t.Fatalf("the consumer is gone, and the answer is %q", got)
			}
		}
	}
}

var check, must, jetStream = harness.Check, harness.Must, harness.JetStream
