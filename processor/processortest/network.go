package processortest

import (
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/test/stress"
	"github.com/nats-io/nats.go"

	"github.com/nats-io/nats-server/v2/server"
)

// Faults of connections. A connection of nats.go to a server in the same process goes
// through a FaultyConn, which can lose or hold back what passes. Closing it is what nats.go
// notices at once; a cut is what it notices only by pings. So a test has both kinds of
// outage, at a time of its own choice, without a socket.

// Network is between the connections of one user and a server that comes and goes. A
// fault of a connection lasts until the connection is closed; the next one is good.
type Network struct {
	mu     sync.Mutex
	Server *server.Server // nil while there is none
	conns  []*FaultyConn
	before func(sent []byte) // called before anything is sent, if not nil
}

// InProcessConn implements nats.InProcessConnProvider.
func (n *Network) InProcessConn() (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Server == nil {
		return nil, errors.New("nobody listens")
	}
	c, err := n.Server.InProcessConn()
	if err != nil {
		return nil, err
	}
	faulty := &FaultyConn{Conn: c, network: n}
	n.conns = append(n.conns, faulty)
	return faulty, nil
}

// Use makes new connections go to s.
func (n *Network) Use(s *server.Server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Server = s
}

// Intercept calls before ahead of everything that is sent.
func (n *Network) Intercept(before func(sent []byte)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.before = before
}

// Each calls do for the present connections, and forgets them.
func (n *Network) Each(do func(*FaultyConn)) {
	n.mu.Lock()
	conns := n.conns
	n.conns = nil
	n.mu.Unlock()
	for _, c := range conns {
		do(c)
	}
}

// FaultyConn is a connection that can be dead in one direction, unnoticed by both ends.
type FaultyConn struct {
	net.Conn
	network    *Network
	Deaf, Mute atomic.Bool // drop what is received, drop what is sent

	mu      sync.Mutex
	delayed bool   // hold back what is sent
	kept    []byte // until arrive
}

func (c *FaultyConn) Read(p []byte) (n int, err error) {
	for {
		n, err = c.Conn.Read(p)
		if err != nil || !c.Deaf.Load() {
			return n, err
		}
	}
}

func (c *FaultyConn) Write(p []byte) (int, error) {
	c.network.mu.Lock()
	before := c.network.before
	c.network.mu.Unlock()
	if before != nil {
		before(p)
	}
	if c.Mute.Load() {
		return len(p), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.delayed {
		c.kept = append(c.kept, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// arrive sends what was held back, and ends the delay.
func (c *FaultyConn) arrive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.Conn.Write(c.kept)
	c.delayed, c.kept = false, nil
}

// Cut makes all present connections dead in both directions. Neither end notices until it
// pings.
func (n *Network) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		c.Deaf.Store(true)
		c.Mute.Store(true)
	}
}

// Mend closes them. The next ones are good.
func (n *Network) Mend() {
	n.Each(func(c *FaultyConn) { _ = c.Close() })
}

// Outage is a processor, in a bubble, that keeps running while its NATS server and its
// connections fail.
type Outage struct {
	*Wire
	Random *rand.Rand
	// Networks of the log connection, the service connection and the clients.
	LogNet, ServiceNet, ClientNet Network
}

// InOutage runs test with a processor and its client, whose connections go through networks
// of their own. Random prints its seed when the test fails.
func InOutage(t *testing.T, durability processor.Durability, test func(*Outage)) {
	t.Helper()
	random := stress.Rand(t)
	ForgetTimers()
	defer ForgetTimers()
	synctest.Test(t, func(t *testing.T) {
		o := &Outage{Random: random, Wire: newWire(t, nil)}
		o.Options.Durability = durability
		o.StartServer()
		var err error
		for nc, network := range map[**nats.Conn]*Network{&o.Log: &o.LogNet, &o.Service: &o.ServiceNet, &o.Client: &o.ClientNet} {
			*nc, err = nats.Connect("", append(eventlog.ConnectOptions(), nats.InProcessServer(network))...)
			o.Check(err)
		}
		o.Run()
		test(o)
	})
}

// StartServer starts a server on the files of the one before, if there was one, and lets
// the networks reach it.
func (o *Outage) StartServer() {
	o.T.Helper()
	ns, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: o.Dir,
		MaxPayload: 4 << 20, NoSigs: true, NoLog: true, SyncAlways: o.Options.Durability == processor.Fsync})
	o.Check(err)
	ns.Start()
	if !ns.ReadyForConnections(Patience) {
		o.T.Fatal("the NATS server does not start")
	}
	for _, n := range []*Network{&o.LogNet, &o.ServiceNet, &o.ClientNet} {
		n.Use(ns)
	}
	o.Shutdown = func() { ns.Shutdown(); ns.WaitForShutdown() }
}

// RestartServer stops the server and starts it again after away.
func (o *Outage) RestartServer(away time.Duration) {
	for _, n := range []*Network{&o.LogNet, &o.ServiceNet, &o.ClientNet} {
		n.Use(nil)
	}
	o.Shutdown()
	time.Sleep(away)
	o.StartServer()
}
