// Reader reads a durable with the Go client, for a test of readers in two languages: it
// appends the sequence of each event to a file, and a line "end" at the end of the log.
//
//	reader URL DATABASE DURABLE FILE [end]
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
)

func main() {
	if err := read(context.Background(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func read(ctx context.Context, args []string) error {
	c, err := client.Connect(args[0], client.WithDatabase(args[1]), client.WithNATSOptions(nats.ReconnectWait(100*time.Millisecond)))
	if err != nil {
		return err
	}
	defer c.Close()
	file, err := os.OpenFile(args[3], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	options := []client.FeedOption{client.Durable(args[2]), client.AckWait(time.Second), client.OfType(client.DocumentReplaced), client.FromStart()}
	if len(args) > 4 {
		options = append(options, client.UntilNow())
	}
	for e, err := range c.Changes(ctx, options...) {
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(file, e.Seq); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(file, "end")
	return err
}
