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
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	var settings []client.PropertyOption
	set := func(option func(time.Duration) client.PropertyOption) func(string) error {
		return func(text string) error {
			d, err := time.ParseDuration(text)
			settings = append(settings, option(d))
			return err
		}
	}
	flag.Func("idle", "time without use after which a session ends", set(client.DefaultTTL))
	flag.Func("warn", "time before that for the hand-over", set(client.WarnBefore))
	flag.Parse()
	c, err := client.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), client.WithReadYourWrites())
	if err != nil {
		return err
	}
	defer c.Close()
	agents, err := OpenAgents(ctx, c, settings...)
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
