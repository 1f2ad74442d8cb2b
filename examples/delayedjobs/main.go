// Command delayedjobs runs jobs later; a job prints its text.
//
//	delayedjobs work                     any number of these share the work
//	delayedjobs at 10m mail-7 'say hi'   run a job in ten minutes
//	delayedjobs cancel mail-7            unless it has begun
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	c, err := client.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	if err != nil {
		return err
	}
	defer c.Close()
	jobs, err := OpenJobs(ctx, c)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "work":
		return jobs.Work(ctx, func(_ context.Context, id string, j Job) error {
			_, err := fmt.Println(id, j.Text)
			return err
		})
	case len(args) == 4 && args[0] == "at":
		delay, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		return jobs.At(ctx, args[2], time.Now().Add(delay), Job{Text: args[3]})
	case len(args) == 2 && args[0] == "cancel":
		return jobs.Cancel(ctx, args[1])
	}
	return fmt.Errorf("use work, at DURATION ID TEXT, or cancel ID")
}
