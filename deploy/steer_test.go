package deploy_test

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/attack"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// fixture is a cluster with the two streams, some events in the log, and a gate on each
// node.
type fixture struct {
	*cluster
	attack.Log // as the operator
}

func newFixture(t *testing.T, config string) *fixture {
	t.Helper()
	f := &fixture{startClusterWith(t, config, 3), attack.Log{DB: db}}
	processor, err := jetstream.New(f.connect(t, "processor"))
	check(t, err)
	if f.JS, err = jetstream.New(f.connect(t, "operator")); err != nil {
		t.Fatal(err)
	}
	f.Create(t, processor, 3)
	f.CreateReaders(t)
	f.openGates(t)
	return f
}

func (c *cluster) openGates(t *testing.T) {
	t.Helper()
	for _, url := range c.urls {
		at := func(user string) *nats.Conn { return harness.Dial(t, url, login(t, user)...) }
		g, err := gate.Open(at("gate-clients"), at("gate-log"), gate.Options{Databases: []schema.DatabaseName{db}, Logger: slog.New(slog.DiscardHandler)})
		check(t, err)
		t.Cleanup(g.Close)
	}
}

// someTargets returns the targets of attacks, in a short run four of them.
func someTargets(t *testing.T) []string {
	targets, random := attack.Targets(db, attack.Secret), stress.Rand(t)
	random.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	return targets[:stress.Pick(4, len(targets))]
}

// TestSteering: no user of the clients' account can have NATS or lapse send anything to a
// subject of its choice by a reply subject. NATS refuses messages with a target of JetStream.
func TestSteering(t *testing.T) {
	t.Parallel()
	f := newFixture(t, natsConf)
	served, targets := f.Serve(t, f.connect(t, "service")), someTargets(t)
	for _, user := range []string{"client", "producer", "auditor"} {
		f.Replies(t, f.connect(t, user), user != "auditor", user != "producer", targets, served)
	}
}
