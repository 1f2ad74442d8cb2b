// Package inprocess serves lapse in the process of the tests of a package.
package inprocess

import (
	"context"
	"errors"
	"os"
	"time"

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
	url, end, err := run(host.Options{StoreDir: dir, Databases: []schema.DatabaseName{"main"}, Processor: processor.Options{Durability: processor.OS}})
	remove := func() error { return os.RemoveAll(dir) }
	if err != nil {
		return "", nil, errors.Join(err, remove())
	}
	return url, func() error { return errors.Join(end(), remove()) }, nil
}

// ServeTest serves databases in memory whose clocks begin at a time and are moved by
// clients, as lapse test does, until stop is called.
func ServeTest(at time.Time) (url string, stop func() error, err error) {
	o := host.Options{Test: &host.Test{At: at}}
	o.Processor.Query.Time = time.Minute // a busy machine takes longer than the default for a long history
	return run(o)
}

// run serves on a free port of 127.0.0.1 until stop is called.
func run(o host.Options) (url string, stop func() error, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	o.Listen = "127.0.0.1:0"
	o.Events = func(e host.Event) {
		if e, ok := e.(host.Ready); ok {
			ready <- e.URL
		}
	}
	go func() { ended <- host.Run(ctx, o) }()
	select {
	case url = <-ready:
		return url, func() error { cancel(); return <-ended }, nil
	case err = <-ended:
		cancel()
		return "", nil, err
	}
}
