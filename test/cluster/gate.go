package cluster

import (
	"io"
	"net"
	"sync"
	"testing"
)

// State is how a gate treats connections.
type State int

const (
	Open State = iota
	// Closed closes all connections and each new one, like a host that refuses them.
	Closed
	// Stalled forwards nothing and closes nothing, like a network that loses all packets:
	// writers block, and data in flight arrives later.
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
	ends    map[net.Conn]bool // both ends of each connection
}

// NewGate returns a gate to an address, open at first, until the test ends.
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

// Addr returns the address of the gate.
func (g *Gate) Addr() string { return g.listener.Addr().String() }

// Set sets the state of the gate.
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

// pass waits while the gate is stalled, and reports whether it is open then.
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

// serve forwards a connection in both directions.
func (g *Gate) serve(near net.Conn) {
	defer g.drop(near)
	if !g.register(near) || !g.pass() {
		return
	}
	far, err := net.Dial("tcp", g.to)
	if err != nil {
		return
	}
	defer g.drop(far)
	if !g.register(far) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { g.forward(near, far) })
	g.forward(far, near)
	back.Wait()
}

// register registers a connection, and reports whether the gate is not closed.
func (g *Gate) register(c net.Conn) bool {
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
				g.pass() // the end of a connection arrives no sooner than its data
			}
			return
		}
	}
}
