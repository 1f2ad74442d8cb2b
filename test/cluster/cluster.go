package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
)

// Nodes is the number of nodes of a cluster.
const Nodes = 3

// patience bounds how long a cluster may take to be healthy; it takes seconds.
const patience = 90 * time.Second

// Cluster is a NATS cluster of three nodes.
type Cluster struct {
	Nodes [Nodes]*Node

	t        testing.TB
	routes   [Nodes][Nodes]*Gate // through which one node connects to another
	accesses []*Access
}

// Access is the path of some clients to the nodes, with gates of its own.
type Access struct{ gates [Nodes]*Gate }

// Options configure the nodes, for benchmarks.
type Options struct {
	SyncAlways bool // each node syncs before it acknowledges
	Ungated    bool // nodes connect to each other directly, so Cut cuts only clients off
}

// Start starts a cluster and returns when it is healthy. The nodes write their logs into
// the directory logs, and end with the test.
func Start(t testing.TB, logs string, o Options) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	binary, err := harness.Build(harness.NATSServer)
	if err != nil {
		t.Fatal(err)
	}
	dir, addresses := t.TempDir(), harness.FreeAddrs(t, 3*Nodes)
	for i := range c.Nodes {
		c.Nodes[i] = &Node{t: t, binary: binary, Name: fmt.Sprint("nats-", i),
			client: addresses[3*i], route: addresses[3*i+1], monitor: addresses[3*i+2]}
	}
	nowhere := NewGate(t, "")
	nowhere.Set(Closed)
	t.Cleanup(func() {
		for _, n := range c.Nodes {
			n.Kill()
		}
	})
	for i, n := range c.Nodes {
		var routes []string
		for j, to := range c.Nodes {
			if i != j {
				c.routes[i][j] = NewGate(t, to.route)
				if o.Ungated {
					routes = append(routes, to.route)
				} else {
					routes = append(routes, c.routes[i][j].Addr())
				}
			}
		}
		n.configure(dir, logs, nowhere.Addr(), routes, o.SyncAlways)
	}
	for _, n := range c.Nodes {
		n.Start()
	}
	c.WaitWell()
	return c
}

// Access returns a path to the nodes, for clients that are cut off together. It must not
// run concurrently with Cut.
func (c *Cluster) Access() *Access {
	c.t.Helper()
	a := &Access{}
	for i, n := range c.Nodes {
		a.gates[i] = NewGate(c.t, n.client)
	}
	c.accesses = append(c.accesses, a)
	return a
}

// URL returns the URLs to connect to: that of node first at first, then the others.
func (a *Access) URL(first int) string {
	var urls []string
	for i := range a.gates {
		urls = append(urls, a.NodeURL((first+i)%Nodes))
	}
	return strings.Join(urls, ",")
}

// NodeURL returns the URL of one node alone.
func (a *Access) NodeURL(node int) string { return "nats://" + a.gates[node].Addr() }

// Set sets the state of all gates.
func (a *Access) Set(s State) {
	for _, g := range a.gates {
		g.Set(s)
	}
}

// SetNode sets the state of the gate to one node.
func (a *Access) SetNode(node int, s State) { a.gates[node].Set(s) }

// Cut partitions one node from the others and, if clients is true, from all
// clients.
func (c *Cluster) Cut(node int, s State, clients bool) {
	for other := range c.Nodes {
		if other != node {
			c.CutRoute(node, other, s)
		}
	}
	for _, a := range c.accesses {
		if clients {
			a.gates[node].Set(s)
		}
	}
}

// CutRoute partitions two nodes from each other.
func (c *Cluster) CutRoute(node, other int, s State) {
	c.routes[node][other].Set(s)
	c.routes[other][node].Set(s)
}

// Heal undoes every fault: all nodes run and all gates are open.
func (c *Cluster) Heal() {
	c.t.Helper()
	for i, n := range c.Nodes {
		n.Start()
		n.Thaw()
		c.Cut(i, Open, true)
	}
}

// WaitWell waits until all nodes see each other, their streams are in sync, and they
// agree on the leader of each: a node that was cut off makes the leader step down within
// seconds.
func (c *Cluster) WaitWell() {
	c.t.Helper()
	var why error
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if why = c.well(); why == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the NATS cluster is not well within %s: %v", patience, why)
		}
	}
}

func (c *Cluster) well() error {
	agreed := map[string]string{}
	for _, n := range c.Nodes {
		if err := n.ask("/healthz", nil); err != nil {
			return err
		}
		leaders, err := n.leaders()
		if err != nil {
			return err
		}
		for stream, leader := range leaders {
			if other, ok := agreed[stream]; leader == "" || ok && leader != other {
				return fmt.Errorf("%s names %q as the leader of %q, and not %q", n.Name, leader, stream, other)
			}
			agreed[stream] = leader
		}
	}
	return nil
}

// Connect returns a connection past all gates, to control the cluster.
func (c *Cluster) Connect() *nats.Conn {
	c.t.Helper()
	var urls []string
	for _, n := range c.Nodes {
		urls = append(urls, n.URL())
	}
	nc, err := nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	return nc
}

// Leader returns the node that leads a stream, -1 if there is none now.
func (c *Cluster) Leader(nc *nats.Conn, stream string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		c.t.Fatal(err)
	}
	s, err := js.Stream(ctx, stream)
	if err != nil || s.CachedInfo().Cluster == nil {
		return -1
	}
	for i, n := range c.Nodes {
		if n.Name == s.CachedInfo().Cluster.Leader {
			return i
		}
	}
	return -1
}

// Lead moves the lead of a stream to a node.
func (c *Cluster) Lead(nc *nats.Conn, node int, stream string) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); c.Leader(nc, stream) != node; time.Sleep(50 * time.Millisecond) {
		// The request fails during an election.
		m, err := nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, fmt.Appendf(nil, `{"placement":{"preferred":%q}}`, c.Nodes[node].Name), time.Second)
		if time.Now().After(deadline) {
			c.t.Fatalf("%s does not lead %s within %s: %v, %v", c.Nodes[node].Name, stream, patience, m, err)
		}
	}
}
