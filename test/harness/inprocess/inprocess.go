// Package inprocess serves lapse in the process of the tests of a package.
package inprocess

import (
	"context"
	"errors"
	"os"

	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/schema"
)

// Serve serves the database main, in a new directory, until stop is called. url is that
// of the NATS server.
func Serve() (url string, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "lapse")
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- host.Run(ctx, host.Options{
			StoreDir: dir, Databases: []schema.DatabaseName{"main"}, Listen: "127.0.0.1:0",
			Processor: processor.Options{Durability: processor.OS},
			Events: func(e host.Event) {
				if e, ok := e.(host.Ready); ok {
					ready <- e.URL
				}
			},
		})
	}()
	stop = func() error {
		cancel()
		return errors.Join(<-ended, os.RemoveAll(dir))
	}
	select {
	case url = <-ready:
		return url, stop, nil
	case err = <-ended:
		ended <- err
		return "", nil, stop()
	}
}
