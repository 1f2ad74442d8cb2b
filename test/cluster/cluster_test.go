package cluster

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// TestCluster: a leader that is killed, frozen or partitioned takes no messages, the
// others take over, and after Heal it takes messages again.
func TestCluster(t *testing.T) {
	for _, do := range []struct {
		name string
		bad  func(c *Cluster, node int)
	}{
		{"killed", func(c *Cluster, node int) { c.Nodes[node].Kill() }},
		{"frozen", func(c *Cluster, node int) { c.Nodes[node].Freeze() }},
		{"cut", func(c *Cluster, node int) { c.Cut(node, Closed, false) }},
		{"stalled", func(c *Cluster, node int) { c.Cut(node, Stalled, false) }},
	} {
		t.Run(do.name, func(t *testing.T) {
			t.Parallel()
			c := Start(t, t.TempDir(), Options{})
			nc := c.Connect()
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, func() error { // on a busy machine nodes lose each other
				_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: Nodes})
				return err
			})
			put := func(js jetstream.JetStream) error {
				_, err := js.Publish(t.Context(), "s", nil, jetstream.WithRetryAttempts(1))
				return err
			}
			leader := c.wait(nc, func(leader int) bool { return leader >= 0 })
			// One client connects to the leader only, one to another node only.
			var sides [2]jetstream.JetStream
			for i := range sides {
				nc, err := nats.Connect(c.Access().NodeURL((leader+i)%Nodes), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(nc.Close)
				if sides[i], err = jetstream.New(nc, jetstream.WithDefaultTimeout(time.Second)); err != nil {
					t.Fatal(err)
				}
				// A node learns the stream's subject some time after the stream exists.
				eventually(t, func() error { return put(sides[i]) })
			}
			began := time.Now()
			do.bad(c, leader)
			if err := put(sides[0]); err == nil {
				t.Error("the node that is alone takes messages")
			}
			for time.Since(began) < patience && put(sides[1]) != nil {
			}
			if err := put(sides[1]); err != nil {
				t.Errorf("the others take none: %v", err)
			}
			t.Logf("the others took over within %s", time.Since(began))
			c.Heal()
			c.WaitWell()
			for time.Since(began) < patience && put(sides[0]) != nil {
			}
			if err := put(sides[0]); err != nil {
				t.Errorf("the node that was alone takes none: %v", err)
			}
		})
	}
}

// eventually retries do until it succeeds, and fails the test with the last error.
func eventually(t *testing.T, do func() error) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		if time.Since(began) > patience {
			t.Fatal(err)
		}
	}
}

func (c *Cluster) wait(nc *nats.Conn, enough func(leader int) bool) int {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if leader := c.Leader(nc, "S"); enough(leader) {
			return leader
		}
		if time.Now().After(deadline) {
			c.t.Fatal("the stream has no leader")
		}
	}
}
