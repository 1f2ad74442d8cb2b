package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
)

// address is the NATS address of lapse: the tests start it on a port of its own.
var address = "nats://127.0.0.1:4222"

type session struct {
	Requests int `json:"requests"`
	TTL      int `json:"ttl,omitempty"` // seconds to live, instead of the collection's default
}

func Example() {
	ctx := context.Background()
	c, err := client.Connect(address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	sessions, err := c.CreateCollection(ctx, "sessions", client.DefaultTTL(30*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	item, err := client.Create(ctx, sessions, "83.149.9.216", session{Requests: 1})
	if err != nil {
		log.Fatal(err)
	}

	// Replace it, unless another client changed it. It lives half an hour from now.
	next := session{Requests: item.Value.Requests + 1}
	_, err = client.Replace(ctx, sessions, item.ID, next, client.IfMatch(item.ETag))
	if errors.Is(err, client.ErrPreconditionFailed) {
		fmt.Println("somebody was faster")
	}
	item, err = client.Get[session](ctx, sessions, "83.149.9.216")
	fmt.Println(item.Value.Requests, err)
	// Output: 2 <nil>
}

// Process every expired session at least once, across restarts.
func ExampleExpirations() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Connect(address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	visits, err := c.CreateCollection(ctx, "visits", client.DefaultTTL(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Create(ctx, visits, "66.249.73.185", session{Requests: 3}); err != nil {
		log.Fatal(err)
	}

	for x, err := range client.Expirations[session](ctx, c, client.InCollection("visits"), client.Durable("bye"), client.FromStart()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s left after %d requests\n", x.ID, x.Value.Requests)
		break // a program would continue for ever
	}
	// Output: 66.249.73.185 left after 3 requests
}

// Read the log to its end as of now.
func ExampleClient_Changes() {
	ctx := context.Background()
	c, err := client.Connect(address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	carts, err := c.CreateCollection(ctx, "carts")
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if _, err := client.Create(ctx, carts, id, session{}); err != nil {
			log.Fatal(err)
		}
	}

	for e, err := range c.Changes(ctx, client.InCollection("carts"), client.OfType(client.DocumentCreated), client.FromStart(), client.UntilNow()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Type, string(e.Body))
	}
	// Output:
	// DocumentCreated {"id":"a","requests":0}
	// DocumentCreated {"id":"b","requests":0}
}

// Find documents by their content, the busiest first.
func ExampleQuery() {
	ctx := context.Background()
	c, err := client.Connect(address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	guests, err := c.CreateCollection(ctx, "guests", client.DefaultTTL(30*time.Minute), client.IncludePaths("/requests"))
	if err != nil {
		log.Fatal(err)
	}
	for i, id := range []string{"a", "b", "c"} {
		if _, err := client.Create(ctx, guests, id, session{Requests: 10 * i}); err != nil {
			log.Fatal(err)
		}
	}

	busy := client.Where("doc.requests >= params.least", map[string]any{"least": 10})
	for item, err := range client.Query[session](ctx, guests, busy, client.OrderBy("/requests", client.Desc)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(item.ID, item.Value.Requests)
	}
	n, err := client.Count(ctx, guests, busy)
	fmt.Println(n, err)
	// Output:
	// c 20
	// b 10
	// 2 <nil>
}

// Change several documents, all or none.
func ExampleBatch_RunAtomic() {
	ctx := context.Background()
	c, err := client.Connect(address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	orders, err := c.CreateCollection(ctx, "orders", client.TTLPerDocument())
	if err != nil {
		log.Fatal(err)
	}

	results, err := orders.Batch().
		Upsert("a", session{Requests: 1, TTL: 60}).
		Delete("b").
		RunAtomic(ctx)
	if err != nil {
		log.Fatal(err) // the batch did not arrive
	}
	if err := results.Err(); errors.Is(err, client.ErrDocumentNotFound) {
		fmt.Println("there was no b, so there is no a")
	}
	// Output: there was no b, so there is no a
}

// Write documents that live for half a minute, and for ever.
func ExampleTTL() {
	ctx := context.Background()
	c, err := client.Connect(address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	tokens, err := c.CreateCollection(ctx, "tokens", client.DefaultTTL(time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	brief, err := client.Upsert(ctx, tokens, "brief", session{}, client.TTL(30*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	kept, err := client.Upsert(ctx, tokens, "kept", session{}, client.NeverExpire)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(brief.Value.TTL, kept.Value.TTL)
	// Output: 30 -1
}

// Handle events in parallel, those of one document in order, and quarantine an event whose
// handler keeps failing.
func ExampleClient_Handle() {
	ctx := context.Background()
	c, err := client.Connect(address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	letters, err := c.CreateCollection(ctx, "letters")
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range []string{"a", "bad", "b"} {
		if _, err := client.Create(ctx, letters, id, session{}); err != nil {
			log.Fatal(err)
		}
	}

	send := func(ctx context.Context, e *client.Event) error {
		if e.ID == "bad" {
			return errors.New("no address")
		}
		return nil
	}
	quarantine := func(ctx context.Context, e *client.Event, err error) error {
		fmt.Println(e.ID, "failed:", err)
		return nil // an error would end Handle, and the event would be redelivered
	}
	err = c.Handle(ctx, send,
		client.InCollection("letters"), client.OfType(client.DocumentCreated), client.FromStart(), client.UntilNow(),
		client.Durable("sender"), client.Workers(4), client.Poison(2, quarantine))
	fmt.Println(err)
	// Output:
	// bad failed: no address
	// <nil>
}

// Let another process take over ten seconds after this one has crashed.
func ExampleAckWait() {
	ctx := context.Background()
	c, err := client.Connect(address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CreateCollection(ctx, "jobs"); err != nil {
		log.Fatal(err)
	}
	for e, err := range c.Changes(ctx, client.InCollection("jobs"), client.FromStart(), client.UntilNow(),
		client.Durable("worker"), client.AckWait(10*time.Second)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Type)
	}
	// Output: CollectionCreated
}

// Connect with any options of nats.go.
func ExampleWithNATSOptions() {
	c, err := client.Connect(address, client.WithNATSOptions(
		nats.Name("billing"), nats.ReconnectWait(100*time.Millisecond), nats.PingInterval(20*time.Second)))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(c.Conn().Opts.Name)
	// Output: billing
}
