// Package host runs lapse inside a program: an embedded or external NATS server with its
// connections, one processor for each database, the web console, and metrics and health
// over HTTP. lapse serve is Run with flags.
package host

import (
	"context"
	"errors"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/schema"
)

// A run in order: HTTP for health and metrics, so that an orchestrator sees a start that
// takes long; the console and the gateway listen, so that an address in use ends it before
// anything was opened; the NATS server, embedded or external, with its connections
// (target); then, for each database, a processor (databases). Stopping goes the other way.
// Each step that has opened something defers its end at once, so every return closes what
// is open and nothing else.
//
// What ends a run: the end of ctx, which is no error; the embedded server or a connection
// that fails for good (target.failed, target.closed); or the failure of the last database
// that was served (databases.lost). One of several databases that fails is started again
// instead (hosted.go).
//
// Who waits for what: a processor's goroutines end in Stop, before the connections close;
// the connections close before the embedded server shuts down.

// run is one call of Run. Its fields are set in the order of run.run, and read by one
// goroutine; monitors alone is read by HTTP handlers from the beginning.
type run struct {
	Options
	monitors  monitors
	console   *ConsoleServer
	cosmos    *CosmosServer
	target    *target
	databases *databases
}

// Run serves the databases until ctx ends, and returns when all has stopped and is on
// disk. It returns nil then, an *OptionsError for options that cannot be served, and
// otherwise why it could not start, go on, or stop cleanly. Errors are one line, which
// says what to do in terms of the flags of lapse serve.
//
// With several databases, one that fails does not end Run, and is started again.
//
// Run does not bound how long it takes to stop: a disk may hang. Doing says what it
// waits for.
func Run(ctx context.Context, o Options) error { return newRun(o).run(ctx) }

func newRun(o Options) *run { return &run{Options: o.ensureDefaults()} }

// run opens the addresses for HTTP and the NATS server, and serves. The order is that of
// the comment above.
func (r *run) run(ctx context.Context) error {
	if err := r.Check(); err != nil {
		return err
	}
	if r.OwnProcess {
		CollectLess()
	}
	if r.Test != nil {
		remove, err := r.makeTestDir()
		if err != nil {
			return err
		}
		defer remove()
	} else if r.Databases != nil {
		r.monitors.set(r.Databases)
	}
	stop, err := r.serveWatchers()
	if err != nil {
		return err
	}
	defer stop()
	if r.console, err = r.Console.Listen(); err != nil {
		return err
	}
	defer r.console.Close()
	if r.cosmos, err = r.Cosmos.Listen(r.OwnProcess || r.Test != nil, r.Processor.Logger); err != nil {
		return err
	}
	defer r.cosmos.Close()
	opened, stopReloads := r.reloads(ctx)
	defer stopReloads()
	r.setDoing("opening NATS")
	r.target, err = r.open()
	// The server may have opened all the same. serve then closes it again, so that its
	// files are in order.
	if ctx.Err() != nil {
		r.Events(StoppedEarly{})
		if err != nil {
			return nil // the end of ctx most likely caused the error
		}
	}
	if err != nil {
		return err
	}
	opened()
	r.Events(Opened{})
	return r.serve(ctx)
}

// reloads reads the files of the embedded NATS server again at each SIGHUP once opened is
// called. A SIGHUP before waits for that: it would end the process. stop returns when no
// reload runs any more, so the target may be closed.
func (r *run) reloads(ctx context.Context) (opened, stop func()) {
	if !r.OwnProcess || !r.Reloadable() {
		return func() {}, func() {}
	}
	ctx, end := context.WithCancel(ctx)
	done := make(chan struct{})
	wait := onReload(func() {
		select {
		case <-done:
			r.reload()
		case <-ctx.Done():
		}
	})
	return func() { close(done) }, func() { end(); wait() }
}

// reload reads the files of the embedded NATS server again.
func (r *run) reload() {
	if err := r.target.reload(); err != nil {
		r.Processor.Logger.Error("not reloaded, nothing is changed: " + err.Error())
		return
	}
	var files []any
	if r.NATSConfig != "" {
		files = append(files, "nats_config", r.NATSConfig)
	}
	if r.Users != nil {
		files = append(files, "users", len(r.Users))
	}
	if r.TLSCert != "" {
		files = append(files, "tls_cert", r.TLSCert)
	}
	r.Processor.Logger.Info("reloaded", files...)
}

// serve starts the databases on the open target, serves them, and closes the target.
// Failing is sent before NATS closes: closing may hang, and then the reason is known all
// the same.
func (r *run) serve(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			r.Events(Failing{err})
		}
		r.setDoing("closing NATS")
		r.target.close()
	}()
	if ctx.Err() != nil {
		return nil
	}
	if r.Test != nil {
		return r.serveTest(ctx)
	}
	if r.Databases == nil {
		r.monitors.set(r.target.Databases)
	}
	options := r.processorOptions()
	if r.OwnProcess {
		options.MemoryLimit = limitHeap(options.Projection.CacheBytes)
	}
	options, release := options.Shared(len(r.target.Databases))
	defer release()
	if options.Process, err = r.join(ctx, options); err != nil {
		return err
	}
	r.databases = newDatabases(r.target.hosted(options, r.monitors.all()), r.Events)
	stopSpreading, err := r.newSpreading(options).start(ctx)
	if err != nil {
		return err
	}
	defer stopSpreading()
	serving, failure := r.start(ctx)
	if !serving {
		return failure
	}
	return r.serveStarted(ctx, failure, stopSpreading)
}

// processorOptions returns the options that all databases have in common. An embedded
// server is this process's own, hence no lease, atomic batches as it has them, and one
// clock for the server's times and lapse's. With durability os a lost end of the log is
// what a power cut may cost, and no reason to refuse the start.
func (r *run) processorOptions() processor.Options {
	o, t := divided(r.Processor), r.target
	if o.Clock == nil {
		o.Clock, o.Boot = machineClock(), bootID()
	}
	o.Node, o.NodeDir, o.AtomicBatch, o.SameClock, o.Limits = t.node, identityOf(t.StoreDir), 0, false, t.limits
	if t.External == nil {
		o.Lease, o.AtomicBatch, o.SameClock = 0, embedded.AtomicBatch, true
		o.AcceptLostEnd = o.AcceptLostEnd || o.Durability == processor.OS
	} else {
		o.ClientsApart = t.External.Gate
	}
	o.Progress = nil
	if len(t.Databases) == 1 {
		o.Progress = func(done, total uint64) { r.Events(Folding{done, total}) }
	}
	return o.EnsureDefaults()
}

// start starts the databases, and reports whether any is served. failure is why none is,
// nil if ctx has ended, or why the target has failed meanwhile.
func (r *run) start(ctx context.Context) (serving bool, failure error) {
	r.Events(Doing(r.databases.doing))
	starting, end := r.target.whileOpen(ctx)
	r.databases.start(starting)
	failure = end()
	r.Events(Started{})
	switch {
	case r.databases.sound():
		return true, failure
	case ctx.Err() != nil:
		r.Events(StoppedEarly{})
		return false, nil
	case failure != nil:
		return false, failure
	case len(r.databases.all) == 1:
		return false, r.target.cause(r.databases.all[0].failure)
	}
	return false, errors.New("no database can be served: see the lines above")
}

// serveStarted serves the databases that have started, until ctx ends or nothing can be served;
// not at all if there is a failure already. It calls stopSpreading before it stops them: to
// other processes this one is then gone, while it still answers.
func (r *run) serveStarted(ctx context.Context, failure error, stopSpreading func()) error {
	if r.OwnProcess {
		defer onAcceptClock(func() { r.databases.each((*processor.Processor).AcceptClock) })()
		events, requests := r.databases.sum((*processor.Processor).Seq), r.databases.sum((*processor.Processor).Requests)
		defer widen(events, requests)()
		defer whenQuiet(events, requests, func() { giveBack(r.databases.all[0].options) })()
	}
	r.target.warn()
	stopAll := r.databases.supervise()
	stop := func() error { stopSpreading(); return stopAll() }
	end, err := r.console.serveEach(r.target)
	if err != nil {
		return errors.Join(err, stop())
	}
	defer end()
	endCosmos, err := r.serveCosmos(func() []schema.DatabaseName { return r.target.Databases })
	if err != nil {
		return errors.Join(err, stop())
	}
	defer endCosmos()
	r.Events(Ready{
		Process: r.target.node, URL: r.target.url, Address: r.target.address, Console: r.console.URL, Cosmos: r.cosmos.Serving(), Databases: r.databases.served(),
		Live: func() []string { return live(r.monitors.all(), len(r.databases.all) > 1) },
	})
	r.console.warn(r.Processor.Logger)
	var lost error
	if failure == nil {
		if failure, lost = r.wait(ctx); failure == nil {
			return stop()
		}
	}
	r.Events(Failing{failure})
	return r.failureOf(failure, lost, stop())
}

// wait waits until ctx ends, and returns nil, or until nothing can be served. lost is the
// failure of the database that was the last one served.
func (r *run) wait(ctx context.Context) (failure, lost error) {
	select {
	case <-ctx.Done():
		return nil, nil
	case lost = <-r.databases.lost:
		return r.target.cause(lost), lost
	case failure = <-r.target.failed:
		return failure, nil
	case failure = <-r.target.closed:
		return failure, nil
	}
}

// failureOf returns what Run returns after a failure; stopped is what the databases returned
// when they stopped. The cause is more useful than what it brought about, which is logged.
func (r *run) failureOf(failure, lost, stopped error) error {
	if failure == lost && len(r.databases.all) > 1 && !r.databases.sound() {
		return stopped // names all databases
	}
	if stopped != nil && stopped != lost {
		r.Processor.Logger.Warn("the processor did not stop cleanly", "err", stopped)
	}
	return failure
}

// setDoing records what Run is doing.
func (r *run) setDoing(what string) { r.Events(Doing(func() string { return what })) }
