package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
)

// startFar starts a node that is a cluster of its own, without JetStream, with a gateway to
// another.
func startFar(t *testing.T, gateway string) *cluster {
	t.Helper()
	o, err := nodeOptions(natsConf, secrets, "nats-1", "127.0.0.1:-1", "127.0.0.1:-1", t.TempDir(), harness.FreeAddrs(t, 3))
	check(t, err)
	o.ServerName, o.Cluster, o.Routes, o.JetStream = "far", server.ClusterOpts{}, nil, false
	o.Gateway = server.GatewayOpts{Name: "far", Host: "127.0.0.1", Port: -1,
		Gateways: []*server.RemoteGatewayOpts{{Name: "lapse", URLs: []*url.URL{{Scheme: "nats", Host: gateway}}}}}
	c := &cluster{}
	s := c.run(t, o)
	if !s.ReadyForConnections(patience) {
		t.Fatal(c.log())
	}
	c.urls = []string{"tls://" + s.Addr().String()}
	return c
}

// TestElsewhere: requests and mutations reach lapse from another cluster by a gateway, from
// the account of the clients and from that of an application, and from a leaf node of the
// application, which also reads the log.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	near := startClusterWith(t, withPorts(t), 3)
	a := near.nodes[0]
	s := harness.Serve(t, serveArgs(near.urls)...)
	far := startFar(t, a.GatewayAddr().String())
	v, err := a.Varz(nil)
	check(t, err)
	leaf := harness.StartNATS(t, &server.Options{
		ServerName: "leaf", Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(), JetStreamDomain: "leaf",
		LeafNode: server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{{URLs: []*url.URL{{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", v.LeafNode.Port), User: url.UserPassword("leaf", "leaf")}}}}},
	})
	onLeaf := harness.Dial(t, leaf.ClientURL())

	for from, nc := range map[string]*nats.Conn{"client": far.connect(t, "client"), "app": far.connect(t, "app"), "leaf": onLeaf} {
		ask := func(subject, body, want string) {
			t.Helper()
			repeat(t, func(ctx context.Context) error {
				m, err := nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: db.API() + subject, Data: []byte(body), Header: nats.Header{"Nats-Msg-Id": {subject}}})
				if err == nil && m.Header.Get("Lapse-Status") != want {
					err = fmt.Errorf("%s: %s: %v %s", from, subject, m.Header, m.Data)
				}
				return err
			})
		}
		ask("collection.create."+from, `{"defaultTtl":-1}`, "201")
		ask("document.upsert."+from+".a", `{}`, "201")
		m := request(t, nc, db.Mutations()+"document.upsert."+from+".b", `{}`)
		var ack struct{ Stream string }
		if err := json.Unmarshal(m.Data, &ack); err != nil || ack.Stream != muts {
			t.Errorf("%s: %s, %v", from, m.Data, err)
		}
		ask("document.get."+from+".b", ``, "200")
	}

	js, err := jetstream.NewWithAPIPrefix(onLeaf, "LAPSE.API")
	check(t, err)
	c, err := js.CreateConsumer(t.Context(), log, jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: db.Events() + "*.DocumentCreated"})
	check(t, err)
	for range 6 {
		m, err := c.Next(jetstream.FetchMaxWait(patience))
		check(t, err)
		check(t, m.DoubleAck(t.Context()))
	}
	s.Stop()
	refuse(t, s, violates)
	for _, c := range []*cluster{near, far} {
		for _, line := range c.violations() {
			t.Error(line)
		}
	}
}
