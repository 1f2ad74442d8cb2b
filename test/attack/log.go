package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// Secret is the token of the subject to which the log of a Log is appended.
const Secret = "K7Q2ZD5W3MBVX4TAHC6RNE"

// Log is the streams of a database that may not change, with a connection that may do all.
type Log struct {
	DB     schema.DatabaseName
	JS     jetstream.JetStream
	before string

	sent      uint64 // mutations that Replies sent
	requested int32  // requests that Replies may have had the service asked
}

// tails are the ends of the subjects of the events that Create appends.
var tails = []string{"orders.DocumentCreated", "orders.DocumentReplaced", "carts.DocumentCreated", "orders.DocumentExpired"}

// EventsOf returns the subjects of the events that Create appends.
func EventsOf(db schema.DatabaseName) (subjects []string) {
	for _, tail := range tails {
		subjects = append(subjects, db.Events()+tail)
	}
	return subjects
}

// CreateStreams makes the streams as the processor does.
func (l *Log) CreateStreams(t *testing.T, by jetstream.JetStream, replicas int) {
	t.Helper()
	appendTo := l.DB.Append() + Secret + ".>"
	for _, config := range []jetstream.StreamConfig{{
		Name: l.DB.LogStream(), Subjects: []string{appendTo}, AllowAtomicPublish: true, DenyDelete: true, Replicas: replicas,
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: appendTo, Destination: l.DB.Events() + ">"},
	}, {
		Name: l.DB.MutationStream(), Subjects: []string{l.DB.Mutations() + ">"}, Replicas: replicas,
	}} {
		harness.Repeat(t, func(ctx context.Context) error { _, err := by.CreateStream(ctx, config); return err })
	}
}

// Create makes the streams, and appends some events.
func (l *Log) Create(t *testing.T, by jetstream.JetStream, replicas int) {
	t.Helper()
	l.CreateStreams(t, by, replicas)
	for i, tail := range tails {
		m := nats.NewMsg(l.DB.Append() + Secret + "." + tail)
		m.Header.Set("Lapse-Time", fmt.Sprint(1000+i))
		m.Header.Set("Nats-Expected-Stream", l.DB.LogStream())
		m.Header.Set("Nats-Msg-Id", fmt.Sprint(i))
		if tail != "orders.DocumentExpired" {
			m.Data = fmt.Appendf(nil, `{"n":%d}`, i)
		}
		harness.Repeat(t, func(ctx context.Context) error { _, err := by.PublishMsg(ctx, m); return err })
	}
	l.before = l.State(t)
}

// readers are consumers, with their streams.
func (l *Log) readers() [][2]string {
	return [][2]string{{l.DB.MutationStream(), "writer"}, {l.DB.LogStream(), "standby"}}
}

// CreateReaders makes the consumers that Targets name.
func (l *Log) CreateReaders(t *testing.T) {
	t.Helper()
	for _, r := range l.readers() {
		harness.Repeat(t, func(ctx context.Context) error {
			_, err := l.JS.CreateConsumer(ctx, r[0], jetstream.ConsumerConfig{Durable: r[1], AckPolicy: jetstream.AckExplicitPolicy})
			return err
		})
	}
	l.before = l.State(t)
}

// State returns all that clients may not change: the streams, their configurations, the
// content of the log byte by byte, and which of the readers exist.
func (l *Log) State(t *testing.T) (state string) {
	t.Helper()
	harness.Repeat(t, func(ctx context.Context) (err error) { state, err = l.read(ctx); return err })
	return state
}

func (l *Log) read(ctx context.Context) (string, error) {
	var b strings.Builder
	streams, list := 0, l.JS.ListStreams(ctx)
	for info := range list.Info() {
		config, _ := json.Marshal(info.Config)
		fmt.Fprintf(&b, "%s %s %s\n", info.Config.Name, info.Created, config)
		streams++
	}
	if list.Err() != nil || streams < 2 { // a new metadata leader lists no streams at first
		return "", fmt.Errorf("%d streams are listed: %v", streams, list.Err())
	}
	s, err := l.JS.Stream(ctx, l.DB.LogStream())
	if err != nil {
		return "", fmt.Errorf("the log: %w", err)
	}
	state := s.CachedInfo().State
	fmt.Fprintf(&b, "%d..%d\n", state.FirstSeq, state.LastSeq)
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return "", err
		} else if err == nil {
			fmt.Fprintf(&b, "%d %s %v %s\n", seq, m.Subject, m.Header, m.Data)
		}
	}
	for _, r := range l.readers() {
		_, err := l.JS.Consumer(ctx, r[0], r[1])
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return "", fmt.Errorf("%s of %s: %w", r[1], r[0], err)
		} else if err == nil {
			fmt.Fprintln(&b, r[1])
		}
	}
	return b.String(), nil
}

// Unchanged fails the test if the state is another than at first.
func (l *Log) Unchanged(t *testing.T, after string) {
	t.Helper()
	if now := l.State(t); now != l.before {
		t.Fatalf("%s: changed from\n%s\nto\n%s", after, l.before, now)
	}
}

// Mutations returns the last sequence of the stream of mutations.
func (l *Log) Mutations(t *testing.T) (last uint64) {
	t.Helper()
	harness.Repeat(t, func(ctx context.Context) error {
		s, err := l.JS.Stream(ctx, l.DB.MutationStream())
		if err == nil {
			last = s.CachedInfo().State.LastSeq
		}
		return err
	})
	return last
}

// Serve answers requests as lapse does, and returns how many there were.
func (l *Log) Serve(t *testing.T, service *nats.Conn) (served *atomic.Int32) {
	t.Helper()
	served = new(atomic.Int32)
	for _, subject := range []string{l.DB.API() + ">", "$SRV.>"} {
		if _, err := service.Subscribe(subject, func(m *nats.Msg) {
			if strings.HasPrefix(m.Subject, l.DB.API()) {
				served.Add(1)
			}
			_ = m.Respond([]byte("{}"))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := service.Flush(); err != nil {
		t.Fatal(err)
	}
	return served
}

// Replies sends requests of every kind, as a user of the clients' account, with each of the
// targets as reply subject. The streams stay unchanged, but for the mutations, if the user may
// send those. It may make consumers of the log if it consumes.
func (l *Log) Replies(t *testing.T, user *nats.Conn, mutates, consumes bool, targets []string, served *atomic.Int32) {
	t.Helper()
	js, err := jetstream.New(user)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		if consumes {
			l.createTargets(t, js)
		}
		var mutation *nats.Msg
		for _, r := range Requests(l.DB) {
			m := &nats.Msg{Subject: r.Subject, Reply: target, Data: r.Data, Header: nats.Header{}}
			if strings.HasPrefix(r.Subject, l.DB.Mutations()) {
				m.Header.Set("Nats-Msg-Id", fmt.Sprint(l.sent))
				mutation = m
			} else {
				m.Header.Set("Nats-Expected-Stream", l.DB.LogStream())
				m.Header.Set("Nats-Request-Info", `{"acc":"LAPSE"}`)
			}
			if err := user.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := user.Flush(); err != nil {
			t.Fatal(err)
		}
		// The absence of an effect cannot be waited for. A late one still counts, since the
		// numbers are totals.
		switch refused := fmt.Sprintf("Publish with Reply of %q", target); {
		case !NATSRefuses(target) && mutates:
			l.sent++
			harness.Eventually(t, target+": the mutation is there", func() bool {
				if l.Mutations(t) >= l.sent {
					return true
				}
				l.requested++                           // by the acknowledgement
				return user.PublishMsg(mutation) != nil // repeated: a stream without a leader stores nothing
			})
		case NATSRefuses(target) && mutates && consumes && !strings.Contains(fmt.Sprint(user.LastError()), refused):
			t.Errorf("%s: not refused: %v", target, user.LastError())
		}
		l.Unchanged(t, user.Opts.Name+", "+target)
		if got := l.Mutations(t); got != l.sent {
			t.Fatalf("%s, %s: %d mutations for %d that were sent", user.Opts.Name, target, got, l.sent)
		}
		// Only messages of the clients' own account can reach the service, never events: a
		// get, its reply, that to a ping, an acknowledgement.
		if l.requested += 4; served.Load() > l.requested {
			t.Fatalf("%s, %s: %d requests served", user.Opts.Name, target, served.Load())
		}
	}
}

// createTargets makes the consumers of Requests anew, as a user.
func (l *Log) createTargets(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	_ = l.JS.DeleteConsumer(t.Context(), l.DB.LogStream(), "mine")
	for name, policy := range map[string]jetstream.DeliverPolicy{"everything": jetstream.DeliverAllPolicy, "emptied": jetstream.DeliverNewPolicy} {
		harness.Repeat(t, func(ctx context.Context) error {
			_ = l.JS.DeleteConsumer(ctx, l.DB.LogStream(), name) // the user may not
			_, err := js.CreateConsumer(ctx, l.DB.LogStream(), jetstream.ConsumerConfig{
				Name: name, InactiveThreshold: time.Hour, AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: policy})
			return err
		})
	}
}
