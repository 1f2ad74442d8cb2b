package deploy_test

import (
	"bytes"
	"context"
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
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

const secret = "K7Q2ZD5W3MBVX4TAHC6RNE"

// fixture is a cluster with the two streams, some events in the log, and a gate on each
// node.
type fixture struct {
	*cluster
	js      jetstream.JetStream // of the operator
	service *nats.Conn
	before  string
}

func newFixture(t *testing.T, config string) *fixture {
	t.Helper()
	f := &fixture{cluster: startClusterWith(t, config, 3)}
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
		repeat(t, func(ctx context.Context) error { _, err := processor.CreateStream(ctx, config); return err })
	}
	for n := range 4 {
		m := nats.NewMsg(appendTo + "orders.DocumentCreated")
		m.Header.Set("Lapse-Time", fmt.Sprint(1000+n))
		m.Header.Set("Nats-Expected-Stream", log)
		m.Header.Set("Nats-Msg-Id", fmt.Sprint(n))
		m.Data = fmt.Appendf(nil, `{"n":%d}`, n)
		repeat(t, func(ctx context.Context) error { _, err := processor.PublishMsg(ctx, m); return err })
	}
	for stream, name := range map[string]string{muts: "writer", log: "standby"} {
		repeat(t, func(ctx context.Context) error {
			_, err := f.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy})
			return err
		})
	}
	f.openGates(t)
	f.before = f.state(t)
	return f
}

func (c *cluster) openGates(t *testing.T) {
	t.Helper()
	for _, url := range c.urls {
		at := func(user string) *nats.Conn { return harness.Dial(t, url, login(t, user)...) }
		g, err := gate.Open(at("gate-clients"), at("gate-log"), gate.Options{Databases: []schema.DatabaseName{db}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Close)
	}
}

// state returns all state that the users of these tests may not change.
func (f *fixture) state(t *testing.T) (state string) {
	t.Helper()
	repeat(t, func(ctx context.Context) (err error) { state, err = f.readState(ctx); return err })
	return state
}

func (f *fixture) readState(ctx context.Context) (string, error) {
	var b bytes.Buffer
	l := f.js.ListStreams(ctx)
	streams := 0
	for si := range l.Info() {
		cfg, _ := json.Marshal(si.Config)
		fmt.Fprintf(&b, "%s %s %s\n", si.Config.Name, si.Created, cfg)
		streams++
	}
	if l.Err() != nil || streams < 2 { // a new metadata leader lists no streams at first
		return "", fmt.Errorf("%d streams are listed: %v", streams, l.Err())
	}
	s, err := f.js.Stream(ctx, log)
	if err != nil {
		return "", fmt.Errorf("the log: %w", err)
	}
	st := s.CachedInfo().State
	fmt.Fprintf(&b, "%d..%d\n", st.FirstSeq, st.LastSeq)
	for seq := st.FirstSeq; seq <= st.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return "", err
		} else if err == nil {
			fmt.Fprintf(&b, "%d %s %v %s\n", seq, m.Subject, m.Header, m.Data)
		}
	}
	for stream, name := range map[string]string{muts: "writer", log: "standby"} {
		if _, err := f.js.Consumer(ctx, stream, name); err != nil {
			return "", fmt.Errorf("%s of %s: %w", name, stream, err)
		}
	}
	return b.String(), nil
}

func (f *fixture) mutations(t *testing.T) (last uint64) {
	t.Helper()
	repeat(t, func(ctx context.Context) error {
		s, err := f.js.Stream(ctx, muts)
		if err == nil {
			last = s.CachedInfo().State.LastSeq
		}
		return err
	})
	return last
}

// TestSteering: no user of the clients' account can have NATS or lapse send anything to a
// subject of its choice, nor use what is another's.
func TestSteering(t *testing.T) {
	t.Parallel()
	f := newFixture(t, natsConf)
	t.Run("push consumers", f.pushConsumers)
	t.Run("replies", f.replies)
}

// replies: all users of the clients' account send requests of every kind with every target,
// or in a short run some, as reply subject. The streams stay unchanged. NATS refuses
// messages with a target of JetStream.
func (f *fixture) replies(t *testing.T) {
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
	targets, random := attack.Targets(db, secret), stress.Rand(t)
	random.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	targets = targets[:stress.Pick(4, len(targets))]
	var sent uint64
	var asked int32 // maximum number of requests to the service so far
	for _, user := range []string{"client", "producer", "auditor"} {
		nc := f.connect(t, user)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range targets {
			if user != "producer" {
				for name, policy := range map[string]jetstream.DeliverPolicy{"everything": jetstream.DeliverAllPolicy, "emptied": jetstream.DeliverNewPolicy} {
					repeat(t, func(ctx context.Context) error {
						_ = f.js.DeleteConsumer(ctx, log, name) // as the operator: the auditor may not
						_, err := js.CreateConsumer(ctx, log, jetstream.ConsumerConfig{Name: name, InactiveThreshold: time.Hour, AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: policy})
						if err != nil {
							err = fmt.Errorf("%s: %w", user, err)
						}
						return err
					})
				}
			}
			var mutation *nats.Msg
			for _, r := range attack.Requests(db) {
				m := &nats.Msg{Subject: r.Subject, Reply: target, Data: r.Data, Header: nats.Header{}}
				if strings.HasPrefix(r.Subject, db.Mutations()) {
					m.Header.Set("Nats-Msg-Id", fmt.Sprint(sent))
					mutation = m
				} else {
					m.Header.Set("Nats-Expected-Stream", log)
					m.Header.Set("Nats-Request-Info", `{"acc":"LAPSE"}`)
				}
				if err := nc.PublishMsg(m); err != nil {
					t.Fatal(err)
				}
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			// The absence of an effect cannot be waited for. A late one still counts,
			// since the numbers are totals.
			if user != "auditor" && !attack.NATSRefuses(target) {
				sent++
				eventually(t, target+": the mutation is there", func() bool {
					return f.mutations(t) >= sent || nc.PublishMsg(mutation) != nil // repeated: a stream without a leader stores nothing
				})
			}
			if now := f.state(t); now != f.before {
				t.Fatalf("%s, %s: changed from\n%s\nto\n%s", user, target, f.before, now)
			}
			if got := f.mutations(t); got != sent {
				t.Fatalf("%s, %s: %d mutations for %d that were sent", user, target, got, sent)
			}
			if asked += 4; served.Load() > asked { // a get, its reply, that to a ping, an acknowledgement
				t.Fatalf("%s, %s: %d requests served", user, target, served.Load())
			}
		}
	}
}

// pushConsumers: a push consumer delivers to a subject that its creator chooses, so the
// gates refuse all targets but inboxes.
func (f *fixture) pushConsumers(t *testing.T) {
	nc := f.connect(t, "client")
	for _, target := range append(attack.Targets(db, secret), "anything", "_INBOX", "_inbox.x") {
		for _, subject := range []string{"$JS.API.CONSUMER.CREATE." + log, "$JS.API.CONSUMER.CREATE." + log + ".push", "$JS.API.CONSUMER.DURABLE.CREATE." + log + ".push"} {
			name := ""
			if strings.HasSuffix(subject, "push") {
				name = `"name":"push","durable_name":"push",`
			}
			m := request(t, nc, subject, fmt.Sprintf(`{"stream_name":%q,"config":{%s"ack_policy":"none","idle_heartbeat":100000000,"deliver_subject":%q}}`, log, name, target))
			if !strings.Contains(string(m.Data), `"error"`) {
				t.Errorf("%s to %s: %s", subject, target, m.Data)
			}
		}
	}
	if now := f.state(t); now != f.before {
		t.Fatalf("changed from\n%s\nto\n%s", f.before, now)
	}
}
