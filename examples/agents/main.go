// Command agents keeps sessions of agents, and hands over what they learned before they end.
//
//	agents [-idle 30m] [-warn 5m] watch   any number of these, one of which works
//	agents say ann 'I never fly'
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/examples/internal/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	var given settings.Settings
	given.Flag("idle", "time without use after which a session ends", client.DefaultTTL)
	given.Flag("warn", "time before that for the hand-over", client.WarnBefore)
	flag.Parse()
	c, err := client.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), client.WithReadYourWrites())
	if err != nil {
		return err
	}
	defer c.Close()
	agents, err := OpenAgents(ctx, c, given...)
	if err != nil {
		return err
	}
	switch args := flag.Args(); {
	case len(args) == 1 && args[0] == "watch":
		return agents.HandOver(ctx, learn)
	case len(args) == 3 && args[0] == "say":
		session, known, err := agents.Say(ctx, args[1], args[2])
		if err == nil {
			fmt.Printf("turn %d, known: %q\n", len(session.Value.Turns), known.Value.Text)
		}
		return err
	}
	return fmt.Errorf("use watch, or say ID TEXT")
}

// learn is where a model summarises.
func learn(_ context.Context, known string, s Session) (string, error) {
	text := strings.TrimSpace(known + " " + strings.Join(s.Turns, " "))
	fmt.Printf("learned: %q\n", text)
	return text, nil
}
