package deploy_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
)

// TestAppAccount: an application in an account of its own uses one connection for requests,
// mutations, the log, and a stream of its own. TestElsewhere reads the log there without
// lapse's client.
func TestAppAccount(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := harness.Serve(t, serveArgs(c.urls)...)
	nc := c.connect(t, "app")
	lapse, err := client.New(nc)
	check(t, err)
	repeat(t, func(ctx context.Context) error {
		_, err := lapse.Do(ctx, "collection.create", "orders", "", []byte(`{"defaultTtl":-1}`))
		return err
	})
	// As many at a time as a client can have: answers to the first ones are not lost.
	const writes = 64
	var writing sync.WaitGroup
	for n := range writes {
		writing.Go(func() {
			m, err := nc.Request(db.API()+fmt.Sprintf("document.upsert.orders.d%d", n), []byte(`{}`), patience)
			if err != nil || m.Header.Get("Nats-Service-Error-Code") != "" {
				t.Errorf("%+v, %v", m, err)
			}
		})
	}
	writing.Wait()

	own, err := jetstream.New(nc)
	check(t, err)
	// A new leader of the stream may not know the ids of the last messages yet.
	eventually(t, "a repeat is a duplicate", func() bool {
		id, duplicate := rand.Text(), false
		for range 2 {
			ack, err := own.Publish(t.Context(), db.Mutations()+"document.upsert.orders.m", []byte(`{}`), jetstream.WithMsgID(id))
			if err != nil || ack.Stream != muts {
				t.Errorf("%+v, %v", ack, err)
				return true
			}
			duplicate = ack.Duplicate
		}
		return duplicate
	})
	eventually(t, "the mutation is applied", func() bool {
		m, err := nc.Request(db.API()+"document.get.orders.m", nil, patience)
		return err == nil && m.Header.Get("Nats-Service-Error-Code") == ""
	})

	if _, err := own.CreateStream(t.Context(), jetstream.StreamConfig{Name: "own", Subjects: []string{"own.>"}, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	if _, err := own.Publish(t.Context(), "own.x", nil); err != nil {
		t.Error(err)
	}
	reading, err := client.New(nc, client.APIPrefix("LAPSE.API"), client.WithTimeout(patience))
	check(t, err)
	pushed := 0
	for e, err := range reading.Changes(t.Context(), client.FromStart(), client.UntilNow(), client.OfType(client.DocumentCreated)) {
		if err != nil || e.Collection != "orders" {
			t.Fatalf("%+v, %v", e, err)
		}
		pushed++
	}
	handled := 0
	for range 2 { // the second reads on at once: the first has given the durable back
		if err := reading.Handle(t.Context(), func(context.Context, *client.Event) error { handled++; return nil },
			client.Durable("billing"), client.FromStart(), client.UntilNow(), client.OfType(client.DocumentCreated)); err != nil {
			t.Error(err)
		}
	}
	if pushed != writes+1 || handled != writes+1 {
		t.Errorf("%d and %d events", pushed, handled)
	}
	if processes, err := lapse.Processes(t.Context()); err != nil || len(processes) != 1 {
		t.Errorf("%+v, %v", processes, err)
	}
	s.Stop()
	refuse(t, s, violates)
	refuse(t, s, func(line string) bool { return strings.Contains(line, "message ignored") })
	for _, line := range c.violations() {
		t.Error(line)
	}
}
