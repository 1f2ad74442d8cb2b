package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/processor/monitor"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// target is the NATS server that has the streams, embedded or external, with the
// connections of lapse to it.
type target struct {
	eventlog.Connections // without Service and Stage, which are per database
	databases            []schema.DatabaseName
	services             []*nats.Conn                                     // one for each database
	stage                func(schema.DatabaseName) func(bytes int) string // nil for an external server
	damage               func(schema.DatabaseName) error                  // damage of the streams; nil for an external server
	url                  string
	storeDir             string
	embedded             bool
	atomicBatch          int // see processor.Options, also for lease and node
	lease                time.Duration
	node                 string
	failed               <-chan error // receives the error that ends an embedded server; nil for an external one

	kept    []*nats.Conn
	closed  chan error // receives why a kept connection is closed for good
	closers []func()
}

// wantedPayload is the max_payload in bytes that fits the largest document with its
// headers and reply.
const wantedPayload = 4 << 20

// warn logs a max_payload that is too small for the largest documents.
func (t *target) warn(logger *slog.Logger) {
	if payload := min(t.Log.MaxPayload(), t.services[0].MaxPayload()); payload < wantedPayload {
		logger.Warn("max_payload of the NATS server is too small for documents of 2 MiB: set it to 4MB", "max_payload", payload)
	}
}

// close closes the connections and an embedded server, the last opened first.
func (t *target) close() {
	for i := len(t.closers) - 1; i >= 0; i-- {
		t.closers[i]()
	}
}

// of returns the connections of the i-th database.
func (t *target) of(i int) eventlog.Connections {
	c := t.Connections
	c.Service, c.Shared = t.services[i], len(t.databases) > 1
	if t.stage != nil {
		c.Stage, c.Checked = t.stage(t.databases[i]), true // the embedded server has checked the files
	}
	return c
}

// hosted returns the processors to start, with the options that they have in common.
func (t *target) hosted(o processor.Options, monitors []*monitor.Monitor) (all []*hosted) {
	logger := o.Logger
	for i, name := range t.databases {
		o.Database, o.Dir, o.Monitor = name, projectionDir(t.storeDir, name), monitors[i]
		o.ClockFile = clockFile(t.storeDir, i, name)
		if len(t.databases) > 1 {
			o.Logger = logger.With("database", string(name))
		}
		one := &hosted{name: name, connections: t.of(i), options: o}
		if t.damage != nil {
			one.damage = t.damage(name)
		}
		all = append(all, one)
	}
	return all
}

// ready returns the line that says what is served, where, and in which roles.
func (t *target) ready(all []*hosted) string {
	var served []string
	var role observe.Role
	for _, one := range all {
		p := one.running.Load()
		if p == nil {
			continue
		}
		role = p.Role()
		if t.embedded || len(all) == 1 {
			served = append(served, string(one.name))
		} else {
			served = append(served, fmt.Sprintf("%s (%s)", one.name, role))
		}
	}
	databases, names := "database", strings.Join(served, ", ")
	if len(all) > 1 {
		databases = "databases"
	}
	kept := fmt.Sprintf("as the %s, projection in %s", role, t.storeDir)
	switch {
	case t.embedded:
		kept = "kept in " + t.storeDir
	case len(all) > 1:
		kept = "projections in " + t.storeDir
	}
	return fmt.Sprintf("ready: %s %s at %s, %s", databases, names, t.url, kept)
}

// open opens the NATS server that the flags name, for these databases, or for all that
// the server has if databases is nil.
func (f *serveFlags) open(databases []schema.DatabaseName, logger *slog.Logger) (_ *target, err error) {
	t := &target{storeDir: f.storeDir, databases: databases, closed: make(chan error, 1)}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if f.external.given() {
		if f.listenGiven {
			logger.Warn("--listen is ignored: it is for the embedded NATS server, and --nats-url or --context is given", "listen", f.listen)
		}
		t.lease = f.lease
		return t, t.openExternal(&f.external, logger)
	}
	return t, t.openEmbedded(f, logger)
}

func (t *target) openEmbedded(f *serveFlags, logger *slog.Logger) (err error) {
	if t.databases == nil {
		if t.databases, err = storedDatabases(f.storeDir); err != nil {
			return err
		}
	}
	server, err := embedded.Start(embedded.Options{
		StoreDir:   f.storeDir,
		Listen:     f.listen,
		Databases:  t.databases,
		SyncAlways: f.durability == processor.Fsync,
		Logger:     logger,

		AcceptLostEnd: f.acceptLostEnd,
		Known: func(database schema.DatabaseName, prefix string) eventlog.Extent {
			return eventlog.ReadExtent(projectionDir(f.storeDir, database), prefix)
		},
	})
	if errors.Is(err, embedded.ErrListenAddress) {
		return usageErrorf("%v", err)
	}
	if err != nil {
		return err
	}
	t.closers = append(t.closers, server.Shutdown)
	t.url, t.embedded, t.atomicBatch, t.failed = server.URL(), true, embedded.AtomicBatch, server.Failed()
	if err := t.keep(&t.Log)(server.ConnectLog()); err != nil {
		return err
	}
	t.stage, t.damage = server.Stage, server.Damage
	return t.openServices(func(schema.DatabaseName) (*nats.Conn, error) { return server.ConnectService() })
}

// openServices opens a request connection for each database, so that a processor that
// stops reading its own does not block the requests of the others.
func (t *target) openServices(connect func(schema.DatabaseName) (*nats.Conn, error)) error {
	t.services = make([]*nats.Conn, len(t.databases))
	for i, name := range t.databases {
		if err := t.keep(&t.services[i])(connect(name)); err != nil {
			return err
		}
	}
	return nil
}

// keep stores a new connection in *as, watches it, and closes it in close.
func (t *target) keep(as **nats.Conn) func(*nats.Conn, error) error {
	return func(nc *nats.Conn, err error) error {
		if err != nil {
			return err
		}
		*as = nc
		t.kept = append(t.kept, nc)
		t.closers = append(t.closers, nc.Close)
		nc.SetClosedHandler(func(nc *nats.Conn) {
			select {
			case t.closed <- closedForGood(nc):
			default: // one error is enough to end serve
			}
		})
		return t.cause(nil) // nc may have closed before its handler was set
	}
}

// cause returns why a connection is closed for good, if one is, else err: nats.go
// reconnects after most errors, but not after each.
func (t *target) cause(err error) error {
	for _, nc := range t.kept {
		if nc.IsClosed() {
			return closedForGood(nc)
		}
	}
	return err
}

func closedForGood(nc *nats.Conn) error {
	why := cmp.Or(nc.LastError(), nats.ErrConnectionClosed)
	return fmt.Errorf("NATS closed the connection %q for good: %w: see the log of the NATS server, and start lapse again", nc.Opts.Name, why)
}

// whileOpen returns a context that ends when the embedded server fails or a connection
// is closed for good. end stops the watch and returns the error.
func (t *target) whileOpen(ctx context.Context) (_ context.Context, end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	said := make(chan error, 1)
	go func() {
		defer close(said)
		var err error
		select {
		case err = <-t.failed:
		case err = <-t.closed:
		case <-ctx.Done():
			return
		}
		said <- err
		cancel()
	}()
	return ctx, func() error { cancel(); return <-said }
}

func (t *target) openExternal(f *externalFlags, logger *slog.Logger) error {
	if err := t.openConnections(f, logger); err != nil {
		return err
	}
	if len(t.databases) > 1 { // for a single one the processor does it
		ctx, cancel := context.WithCancel(context.Background())
		t.closers = append(t.closers, cancel)
		bringing, brought := context.WithTimeout(ctx, togetherTimeout)
		eventlog.BringTo(bringing, t.Log, t.Bulk)
		brought()
		go eventlog.KeepTogether(ctx, t.Log, t.Bulk)
	}
	return t.openGate(f, logger)
}

// openConnections locks the store directory and opens the connections of processors. If
// no databases are named, it takes those of the server.
func (t *target) openConnections(f *externalFlags, logger *slog.Logger) (err error) {
	var lock io.Closer
	if lock, err = embedded.LockStore(t.storeDir); err != nil {
		return err
	}
	t.closers = append(t.closers, func() { _ = lock.Close() })
	if t.node, err = nodeName(t.storeDir); err != nil {
		return err
	}
	for name, as := range map[string]**nats.Conn{logConnection: &t.Log, bulkConnection: &t.Bulk} {
		if err := t.keep(as)(f.connect(name, t.sharedBy(), logger)); err != nil {
			return err
		}
	}
	t.url = t.Log.ConnectedUrlRedacted()
	if t.databases == nil {
		if t.databases, err = remoteDatabases(t.Log); err != nil {
			return err
		}
	}
	return t.openServices(func(database schema.DatabaseName) (*nats.Conn, error) {
		return f.connect(serviceConnection, database, logger)
	})
}

// sharedBy returns the database for the names of shared connections, "" for several.
func (t *target) sharedBy() schema.DatabaseName {
	if len(t.databases) == 1 {
		return t.databases[0]
	}
	return ""
}

// openGate opens a gate if flags name its two connections. Clients without
// permissions on the streams read the log through it.
func (t *target) openGate(f *externalFlags, logger *slog.Logger) error {
	if !f.named(gateLogConnection) && !f.named(gateClientsConnection) {
		return nil
	}
	var streams, clients *nats.Conn
	for name, as := range map[string]**nats.Conn{gateLogConnection: &streams, gateClientsConnection: &clients} {
		if err := t.keep(as)(f.connect(name, t.sharedBy(), logger)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.closers = append(t.closers, cancel)
	bringing, brought := context.WithTimeout(ctx, togetherTimeout)
	defer brought()
	for name, nc := range map[string]*nats.Conn{gateLogConnection: streams, gateClientsConnection: clients} {
		eventlog.BringTo(bringing, t.Log, nc)
		logLosses(nc, logger.With("connection", name))
	}
	g, err := gate.Open(clients, streams, t.databases, logger)
	if err != nil {
		return err
	}
	go eventlog.KeepTogether(ctx, t.Log, streams, clients)
	t.closers = append(t.closers, g.Close)
	return nil
}

// togetherTimeout bounds how long a start waits for connections to move to
// the server of the others. They move later, too.
const togetherTimeout = 5 * time.Second

// logLosses logs when a gate's connection is lost and when it is back; the processor logs
// those of its own. A move to the server of the other connections is no loss.
func logLosses(nc *nats.Conn, logger *slog.Logger) {
	lost := false // nats.go calls the handlers one after the other
	nc.SetDisconnectErrHandler(func(nc *nats.Conn, err error) {
		if err != nil && !nc.IsClosed() {
			lost = true
			logger.Warn("the connection to NATS is lost", "err", err)
		}
	})
	nc.SetReconnectHandler(func(nc *nats.Conn) {
		if lost {
			lost = false
			logger.Info("the connection to NATS is back", "url", nc.ConnectedUrlRedacted())
		}
	})
}
