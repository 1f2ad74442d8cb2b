// Package cluster runs a NATS cluster for fault tests: three nats-server processes with
// JetStream, each of which can be killed, frozen and restarted on its store, and gates
// between all of them, and before each client, that can be shut. Nothing here knows of
// lapse.
//
//	c := cluster.Start(t, t.TempDir(), cluster.Options{})
//	a := c.Access()
//	nc, err := nats.Connect(a.URL(0))
//	c.Nodes[1].Kill()
//	c.Cut(2, cluster.Stalled, true)
//	c.Heal()
package cluster
