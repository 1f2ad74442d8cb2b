// Quickstart stores an order that lives for two seconds and prints each order that expires,
// until an interrupt ends it. It may be started again at any time.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lapsedb/lapse/client"
)

type Order struct {
	Customer string `json:"customer"`
	Total    int    `json:"total"`
}

func main() {
	c, err := client.Connect(cmp.Or(os.Getenv("NATS_URL"), "nats://127.0.0.1:4222"))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c, os.Stdout); ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, c *client.Client, out io.Writer) error {
	orders, err := c.OpenCollection(ctx, "orders", client.DefaultTTL(time.Hour))
	if err != nil {
		return err
	}
	if _, err := client.Upsert(ctx, orders, "SO10", Order{Customer: "C1", Total: 5}, client.TTL(2*time.Second)); err != nil {
		return err
	}
	of := client.Where("doc.customer == params.c", map[string]any{"c": "C1"})
	for order, err := range client.Query[Order](ctx, orders, of, client.OrderBy("/total", client.Desc)) {
		if err != nil {
			return err
		}
		fmt.Fprintln(out, order.ID, "has version", order.ETag)
	}
	return bill(ctx, c, out)
}

func bill(ctx context.Context, c *client.Client, out io.Writer) error {
	// NATS keeps the position of "billing": each expiry comes at least once, also after a crash.
	for order, err := range client.Expirations[Order](ctx, c, client.InCollection("orders"), client.Durable("billing")) {
		if _, unfit := errors.AsType[*client.DecodeError](err); unfit {
			continue // no order: else each start would get it again
		} else if err != nil {
			return err
		}
		fmt.Fprintln(out, order.ID, "has expired with total", order.Value.Total)
	}
	return ctx.Err()
}
