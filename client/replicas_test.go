package client_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
)

// laggard is a replica of a leader's log. It answers what JetStream asks consumers, and leaves
// to the leader what is asked of the stream.
func laggard(t *testing.T, leader *standin, apis ...string) *standin {
	t.Helper()
	s := newStandin(t).log()
	for _, api := range apis {
		s.subscribe(api+">", func(m *nats.Msg) {
			tail := strings.TrimPrefix(m.Subject, api)
			by := leader.nc
			if strings.HasPrefix(tail, "CONSUMER.") {
				by = s.nc
			}
			if strings.HasPrefix(tail, "CONSUMER.MSG.NEXT.") {
				_ = by.PublishRequest("$JS.API."+tail, m.Reply, m.Data)
			} else if reply, err := by.Request("$JS.API."+tail, m.Data, patience); err == nil {
				if strings.HasPrefix(tail, "CONSUMER.CREATE.") { // does not know yet who listens
					reply.Data = bytes.ReplaceAll(reply.Data, []byte(`"push_bound":true`), []byte(`"push_bound":false`))
				}
				_ = m.RespondMsg(reply)
			}
		})
	}
	return s
}

// append appends an event of each collection, an internal one for _.
func (s *standin) append(collections string) {
	s.t.Helper()
	for name := range strings.FieldsSeq(collections) {
		if name == "_" {
			s.internal()
		} else {
			s.created(name, "a")
		}
	}
}

// TestReplicaLags: a reader with an end never takes a part of the log for the whole,
// whichever replica serves its consumer. It fails if that replica does not catch up.
func TestReplicaLags(t *testing.T) {
	t.Parallel()
	const first, rest = "orders orders orders orders orders", "orders orders orders orders orders carts _"
	start := client.FromStart()
	for reader, api := range map[string]client.Option{"pull": client.WithJetStreamDomain("hub"), "imported": client.APIPrefix("HUB.API")} {
		leader := newStandin(t).log()
		replica := laggard(t, leader, "$JS.hub.API.", "HUB.API.")
		leader.append(first + " " + rest)
		replica.append(first)
		// read counts the messages until the end, and reports each, except of the log.
		read := func(t *testing.T, wait time.Duration, visit func(n int), choice ...client.FeedOption) (n int, last error) {
			c, err := client.New(replica.connect("lapse"), api, client.WithTimeout(patience), client.Standstill(wait))
			check(t, err)
			ctx := patient(t)
			errs := failures(c.Log(ctx))
			if choice != nil {
				errs = failures(c.Changes(ctx, append(choice, client.UntilNow())...))
			}
			for err := range errs {
				if last = err; err == nil {
					n++
					visit(n)
				}
			}
			return n, last
		}
		t.Run(reader, func(t *testing.T) {
			for name, test := range map[string]struct {
				choice     []client.FeedOption
				incomplete string // how far the log is read
			}{
				"log":        {nil, "up to sequence 5 of 12"},
				"changes":    {[]client.FeedOption{start}, "up to sequence 5 of 12"},
				"collection": {[]client.FeedOption{start, client.InCollection("orders")}, "up to sequence 5 of 10"},
				"last":       {[]client.FeedOption{start, client.InCollection("carts")}, "up to sequence 0 of 11"},
				"sequence":   {[]client.FeedOption{client.FromSeq(7)}, "up to sequence 6 of 12"},
				"time":       {[]client.FeedOption{client.FromTime(time.Now().Add(-time.Hour))}, "up to sequence 5 of 12"},
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					n, err := read(t, 2*time.Second, func(int) {}, test.choice...) // more than a busy machine takes
					if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), test.incomplete) {
						t.Errorf("%d messages, %v, want %s", n, err, test.incomplete)
					}
				})
			}
		})
		n, err := read(t, patience, func(n int) {
			if n == 5 {
				replica.append(rest)
			}
		}, start)
		if n != 11 || err != nil {
			t.Errorf("%s: %d events of 11 once the replica catches up: %v", reader, n, err)
		}
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
