// Command lapse is the server and the command-line client of lapse, documents with a
// time to live over NATS.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	os.Exit(newApp(os.Stdin, os.Stdout, os.Stderr).run(ctx, os.Args[1:]))
}
