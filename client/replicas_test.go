package client_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
)

// replicated is a stand-in whose log has three replicas, on servers of a cluster.
func replicated(t *testing.T) (s *standin, servers []*server.Server) {
	t.Helper()
	addrs := harness.FreeAddrs(t, 3)
	for i, addr := range addrs {
		o := harness.NATSOptions(t.TempDir())
		o.ServerName = fmt.Sprint("nats-", i)
		var port int
		if _, err := fmt.Sscanf(addr, "127.0.0.1:%d", &port); err != nil {
			t.Fatal(err)
		}
		o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port}
		o.Routes = server.RoutesFromStr("nats://" + strings.Join(addrs, ",nats://"))
		servers = append(servers, harness.StartNATS(t, o))
	}
	nc, err := nats.Connect("", nats.InProcessServer(servers[0]), nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	s = &standin{t: t, server: servers[0], nc: nc, js: js, answers: map[string]answer{}}
	eventually(t, "the log has three replicas", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // nobody answers before there is a leader
		defer cancel()
		stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "LAPSE_main", Subjects: []string{"lapse.main.events.>"}, Replicas: 3})
		return err == nil && stream.CachedInfo().Cluster.Leader != ""
	})
	return s, servers
}

// followers returns the replicas of the log that do not lead it, once all have n messages.
func followers(t *testing.T, servers []*server.Server, n uint64) (all []server.RaftNode) {
	t.Helper()
	for _, ns := range servers {
		eventually(t, "a replica has the log", func() bool {
			state, err := ns.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
			return err == nil && len(state.AccountDetails) == 1 && state.AccountDetails[0].Streams[0].State.LastSeq == n
		})
		nodes := *(*map[string]server.RaftNode)(unsafe.Pointer(reflect.ValueOf(ns).Elem().FieldByName("raftNodes").UnsafeAddr()))
		for name, node := range nodes {
			if strings.HasPrefix(name, "S-") && !node.Leader() {
				all = append(all, node)
			}
		}
	}
	if len(all) != 2 {
		t.Fatalf("the log has %d followers", len(all))
	}
	return all
}

// TestReplicaLags: a reader with an end never takes a part of the log for the whole,
// whichever replica serves its consumer. It fails if that replica does not catch up.
func TestReplicaLags(t *testing.T) {
	s, servers := replicated(t)
	for range 5 {
		s.created("orders", "a")
	}
	behind := followers(t, servers, 5)
	for _, replica := range behind {
		if err := replica.PauseApply(); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		s.created("orders", "b")
	}
	s.created("carts", "c")
	s.internal()
	// read counts the messages until the end, and reports each, except of the log.
	read := func(opts []client.Option, visit func(n int), choice ...client.FeedOption) (n int, err error) {
		c, err := client.New(s.nc, append(opts, client.WithTimeout(patience))...)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if choice == nil {
			for _, err := range c.Log(ctx) {
				if err != nil {
					return n, err
				}
				n++
			}
			return n, nil
		}
		for _, err := range c.Changes(ctx, append(choice, client.UntilNow())...) {
			if err != nil {
				return n, err
			}
			n++
			visit(n)
		}
		return n, nil
	}
	start := client.FromStart()
	for reader, api := range map[string][]client.Option{"pull": nil, "imported": {importedAPI}} {
		for name, test := range map[string]struct {
			choice     []client.FeedOption
			whole      int
			incomplete string // how far the log is read on a replica that lags
		}{
			"log":        {nil, 12, "up to sequence 5 of 12"},
			"changes":    {[]client.FeedOption{start}, 11, "up to sequence 5 of 12"},
			"collection": {[]client.FeedOption{start, client.InCollection("orders")}, 10, "up to sequence 5 of 10"},
			"last":       {[]client.FeedOption{start, client.InCollection("carts")}, 1, "up to sequence 0 of 11"},
			"sequence":   {[]client.FeedOption{client.FromSeq(7)}, 5, "up to sequence 6 of 12"},
			"time":       {[]client.FeedOption{client.FromTime(time.Now().Add(-time.Hour))}, 11, "up to sequence 5 of 12"},
		} {
			t.Run(reader+"/"+name, func(t *testing.T) {
				// NATS places each consumer on any of the three replicas.
				for end := time.Now().Add(patience); ; {
					n, err := read(append(api, client.Standstill(100*time.Millisecond)), func(int) {}, test.choice...)
					switch {
					case err == nil && n != test.whole:
						t.Fatalf("%d messages of %d", n, test.whole)
					case err != nil && !errors.Is(err, client.ErrUnavailable), time.Now().After(end):
						t.Fatal(n, err)
					case err != nil && strings.Contains(err.Error(), test.incomplete):
						return
					}
				}
			})
		}
	}
	n, err := read([]client.Option{client.Standstill(patience)}, func(n int) {
		if n == 5 {
			for _, replica := range behind {
				replica.ResumeApply()
			}
		}
	}, start)
	if n != 11 || err != nil {
		t.Errorf("%d events of 11 once the replicas catch up: %v", n, err)
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
