package cluster

import (
	"io"
	"net"
	"sync"
	"testing"
)

// State says what a gate does with connections.
type State int

const (
	Open State = iota
	// Closed ends the connections that there are and each new one, as a host
	// does that says no.
	Closed
	// Stalled lets nothing through and ends nothing, as a network does that
	// loses all: who writes waits, and what was under way arrives later.
	Stalled
)

func (s State) String() string { return [...]string{"open", "closed", "stalled"}[s] }

// Gate is a TCP proxy.
type Gate struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond
	state   State
	ended   bool
	ends    map[net.Conn]bool // of all connections, both
}

// NewGate returns an open gate to an address, until the test's end.
func NewGate(t testing.TB, to string) *Gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &Gate{listener: l, to: to, ends: make(map[net.Conn]bool)}
	g.changed.L = &g.mu
	g.running.Go(g.accept)
	t.Cleanup(func() {
		g.mu.Lock()
		g.ended = true
		g.mu.Unlock()
		g.Set(Closed)
		l.Close()
		g.running.Wait()
	})
	return g
}

// Addr is where the gate listens.
func (g *Gate) Addr() string { return g.listener.Addr().String() }

// Set changes what the gate does.
func (g *Gate) Set(s State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state = s
	g.changed.Broadcast()
	if s == Closed {
		for c := range g.ends {
			c.Close()
		}
	}
}

// pass waits while the gate is stalled, and says whether it is open then.
func (g *Gate) pass() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.state == Stalled && !g.ended {
		g.changed.Wait()
	}
	return g.state == Open && !g.ended
}

func (g *Gate) accept() {
	for {
		c, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.running.Go(func() { g.serve(c) })
	}
}

// serve forwards what comes in on a connection, and what comes back.
func (g *Gate) serve(near net.Conn) {
	defer g.drop(near)
	if !g.keep(near) || !g.pass() {
		return
	}
	far, err := net.Dial("tcp", g.to)
	if err != nil {
		return
	}
	defer g.drop(far)
	if !g.keep(far) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { g.forward(near, far) })
	g.forward(far, near)
	back.Wait()
}

// keep notes a connection, unless the gate is closed.
func (g *Gate) keep(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends[c] = true
	return g.state != Closed
}

func (g *Gate) drop(c net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.ends, c)
	c.Close()
}

// forward copies until either end is closed, which closes the other.
func (g *Gate) forward(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !g.pass() {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if err == io.EOF {
				g.pass() // that it ended comes through no sooner than what it sent
			}
			return
		}
	}
}
