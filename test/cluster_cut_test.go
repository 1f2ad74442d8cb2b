package test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/cluster"
)

// TestDurableAcrossCuts: the route between the log's node and the reader's node loses
// what is on its way, and is there again before either end of the consumer notices. A
// durable's reader gets each event once or more, and for the first time in order.
func TestDurableAcrossCuts(t *testing.T) {
	t.Parallel()
	const cuts, each = 3, 40
	c := cluster.Start(t, t.TempDir(), cluster.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	control := c.Connect()
	js, err := jetstream.New(control)
	check(t, err)
	eventually(t, "the log is there", func() bool {
		asking, cancel := context.WithTimeout(ctx, time.Second) // no reply while the cluster has no leader
		defer cancel()
		_, err := js.CreateStream(asking, jetstream.StreamConfig{Name: "LAPSE_main", Subjects: []string{"lapse.main.events.>"}})
		return err == nil
	})
	log := c.Leader(control, "LAPSE_main")
	reader := (log + 1) % cluster.Nodes
	near, err := nats.Connect(c.Nodes[log].URL())
	check(t, err)
	defer near.Close()
	nearby, err := jetstream.New(near) // no reply passes the route
	check(t, err)
	publish := func() {
		for range each {
			m := nats.NewMsg("lapse.main.events.orders.CollectionReplaced")
			e := schema.Event{Type: schema.CollectionReplaced, Collection: "orders", Time: 1, Body: []byte(`{}`)}
			e.Headers(func(name, value string) { m.Header.Set(name, value) })
			m.Data = e.Body
			if _, err := near.RequestMsgWithContext(ctx, m); err != nil {
				t.Error(err)
				return
			}
		}
	}
	far, err := client.Connect(c.Access().NodeURL(reader))
	check(t, err)
	defer far.Close()
	publish()
	var cutting sync.WaitGroup
	defer cutting.Wait()
	cutting.Go(func() {
		for n := range cuts {
			eventually(t, "the reader has all, and a pull that waits for more", func() bool {
				asking, cancel := context.WithTimeout(ctx, time.Second) // no reply while the consumer has no leader
				defer cancel()
				consumer, err := nearby.Consumer(asking, "LAPSE_main", "billing")
				return err == nil && consumer.CachedInfo().AckFloor.Stream == uint64(1+n)*each && consumer.CachedInfo().NumWaiting > 0
			})
			c.CutRoute(log, reader, cluster.Stalled)
			publish() // more than the pull asks for
			c.CutRoute(log, reader, cluster.Closed)
			c.CutRoute(log, reader, cluster.Open)
		}
	})
	seen, next := make(map[uint64]bool), uint64(1)
	for e, err := range far.Changes(ctx, client.Durable("billing"), client.FromStart(), client.UntilSeq((1+cuts)*each)) {
		check(t, err)
		if !seen[e.Seq] && e.Seq != next {
			t.Errorf("after event %d the reader gets %d", next-1, e.Seq)
		}
		seen[e.Seq], next = true, max(next, e.Seq+1)
	}
	if want := (1 + cuts) * each; len(seen) != want {
		t.Errorf("%d events, want %d", len(seen), want)
	}
}
