package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/attack"
)

const secret = "K7Q2ZD5W3MBVX4TAHC6RNE"

// fixture is a cluster with the two streams, some events in the log, and on each
// node a gate.
type fixture struct {
	*cluster
	js      jetstream.JetStream // the operator's
	service *nats.Conn
	before  string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{cluster: startCluster(t, 3)}
	f.service = f.connect(t, "service")
	processor, err := jetstream.New(f.connect(t, "processor"))
	if err != nil {
		t.Fatal(err)
	}
	if f.js, err = jetstream.New(f.connect(t, "operator")); err != nil {
		t.Fatal(err)
	}
	appendTo := db.Append() + secret + "."
	for _, config := range []jetstream.StreamConfig{{
		Name: log, Subjects: []string{appendTo + ">"}, AllowAtomicPublish: true, DenyDelete: true, Replicas: 3,
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: appendTo + ">", Destination: db.Events() + ">"},
	}, {
		Name: muts, Subjects: []string{db.Mutations() + ">"}, Replicas: 3,
	}} {
		eventually(t, "the stream "+config.Name, func() bool { // on a busy machine nodes lose each other
			_, err := processor.CreateStream(ctx(t), config)
			return err == nil
		})
	}
	for n := range 4 {
		m := nats.NewMsg(appendTo + "orders.DocumentCreated")
		m.Header.Set("Lapse-Time", fmt.Sprint(1000+n))
		m.Header.Set("Nats-Expected-Stream", log)
		m.Data = fmt.Appendf(nil, `{"n":%d}`, n)
		if _, err := processor.PublishMsg(ctx(t), m); err != nil {
			t.Fatal(err)
		}
	}
	for stream, name := range map[string]string{muts: "writer", log: "standby"} {
		eventually(t, "the consumer "+name, func() bool {
			_, err := f.js.CreateConsumer(ctx(t), stream, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy})
			return err == nil
		})
	}
	f.openGates(t)
	f.before = f.state(t)
	return f
}

func (c *cluster) openGates(t *testing.T) {
	t.Helper()
	for _, url := range c.urls {
		at := func(user string) *nats.Conn {
			nc, err := nats.Connect(url, login(t, user)...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			return nc
		}
		g, err := gate.Open(at("gate-clients"), at("gate-log"), []schema.DatabaseName{db}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Close)
	}
}

// state is everything that nobody here may change.
func (f *fixture) state(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	l := f.js.ListStreams(ctx(t))
	for si := range l.Info() {
		cfg, _ := json.Marshal(si.Config)
		fmt.Fprintf(&b, "%s %s %s\n", si.Config.Name, si.Created, cfg)
	}
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	s, err := f.js.Stream(ctx(t), log)
	if err != nil {
		t.Fatalf("the log is gone: %v", err)
	}
	st := s.CachedInfo().State
	fmt.Fprintf(&b, "%d..%d\n", st.FirstSeq, st.LastSeq)
	for seq := st.FirstSeq; seq <= st.LastSeq; seq++ {
		m, err := s.GetMsg(ctx(t), seq)
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			t.Fatal(err)
		} else if err == nil {
			fmt.Fprintf(&b, "%d %s %v %s\n", seq, m.Subject, m.Header, m.Data)
		}
	}
	for stream, name := range map[string]string{muts: "writer", log: "standby"} {
		if _, err := f.js.Consumer(ctx(t), stream, name); err != nil {
			t.Fatalf("%s of %s: %v", name, stream, err)
		}
	}
	return b.String()
}

func (f *fixture) mutations(t *testing.T) uint64 {
	t.Helper()
	s, err := f.js.Stream(ctx(t), muts)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}

// Every user of the clients' account has something published in reply, in every
// way, to every target. The streams are as they were.
func TestSteeredReplies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var served atomic.Int32
	for _, subject := range []string{db.API() + ">", "$SRV.>"} {
		if _, err := f.service.Subscribe(subject, func(m *nats.Msg) {
			if strings.HasPrefix(m.Subject, db.API()) {
				served.Add(1)
			}
			_ = m.Respond([]byte("{}"))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.service.Flush(); err != nil {
		t.Fatal(err)
	}
	targets := attack.Targets(db, secret)
	if testing.Short() {
		targets = targets[:5]
	}
	var sent uint64
	var asked int32 // how often the service may have been asked
	for _, user := range []string{"client", "producer", "auditor"} {
		nc := f.connect(t, user)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range targets {
			if user != "producer" {
				for name, policy := range map[string]jetstream.DeliverPolicy{"everything": jetstream.DeliverAllPolicy, "emptied": jetstream.DeliverNewPolicy} {
					_ = f.js.DeleteConsumer(ctx(t), log, name) // which the auditor may not
					if _, err := js.CreateConsumer(ctx(t), log, jetstream.ConsumerConfig{Name: name, InactiveThreshold: time.Hour, AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: policy}); err != nil {
						t.Fatal(user, err)
					}
				}
			}
			for _, r := range attack.Requests(db) {
				m := &nats.Msg{Subject: r.Subject, Reply: target, Data: r.Data}
				if !strings.HasPrefix(r.Subject, db.Mutations()) {
					m.Header = nats.Header{"Nats-Expected-Stream": {log}, "Nats-Request-Info": {`{"acc":"LAPSE"}`}}
				}
				if err := nc.PublishMsg(m); err != nil {
					t.Fatal(err)
				}
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			// What should not happen cannot be waited for. When it comes late it
			// counts all the same: numbers are those since the beginning.
			if user != "auditor" {
				sent++
				eventually(t, target+": the mutation is there", func() bool { return f.mutations(t) >= sent })
			}
			if now := f.state(t); now != f.before {
				t.Fatalf("%s, %s: changed from\n%s\nto\n%s", user, target, f.before, now)
			}
			if got := f.mutations(t); got != sent {
				t.Fatalf("%s, %s: %d mutations for %d that were sent", user, target, got, sent)
			}
			if asked += 3; served.Load() > asked {
				t.Fatalf("%s, %s: %d requests served", user, target, served.Load())
			}
		}
	}
}

// A push consumer delivers where its creator says. The gates take inboxes.
func TestSteeredPushConsumers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	nc := f.connect(t, "client")
	for _, target := range append(attack.Targets(db, secret), "anything", "_INBOX", "_inbox.x") {
		for _, subject := range []string{"$JS.API.CONSUMER.CREATE." + log, "$JS.API.CONSUMER.CREATE." + log + ".push", "$JS.API.CONSUMER.DURABLE.CREATE." + log + ".push"} {
			name := ""
			if strings.HasSuffix(subject, "push") {
				name = `"name":"push","durable_name":"push",`
			}
			m, err := nc.Request(subject, fmt.Appendf(nil, `{"stream_name":%q,"config":{%s"ack_policy":"none","idle_heartbeat":100000000,"deliver_subject":%q}}`, log, name, target), patience)
			if err != nil {
				t.Fatal(subject, err)
			}
			if !strings.Contains(string(m.Data), `"error"`) {
				t.Errorf("%s to %s: %s", subject, target, m.Data)
			}
		}
	}
	if now := f.state(t); now != f.before {
		t.Fatalf("changed from\n%s\nto\n%s", f.before, now)
	}
}
