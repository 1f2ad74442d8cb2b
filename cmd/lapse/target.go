package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// target is the NATS server that has the streams, embedded or external, with the
// connections of lapse to it.
type target struct {
	eventlog.Connections
	url         string
	storeDir    string
	embedded    bool
	atomicBatch int // see processor.Options, as are these
	lease       time.Duration
	node        string
	failed      <-chan error // receives the error that ends an embedded server; nil for an external one

	closers []func()
}

// wantedPayload is the max_payload in bytes that fits the largest document with its
// headers and reply.
const wantedPayload = 4 << 20

// warn logs a max_payload that is too small for the largest documents.
func (t *target) warn(logger *slog.Logger) {
	if payload := min(t.Log.MaxPayload(), t.Service.MaxPayload()); payload < wantedPayload {
		logger.Warn("max_payload of the NATS server is too small for documents of 2 MiB: set it to 4MB", "max_payload", payload)
	}
}

// close closes the connections and an embedded server, the last opened first.
func (t *target) close() {
	for i := len(t.closers) - 1; i >= 0; i-- {
		t.closers[i]()
	}
}

// kept describes the store directory and the role, for the ready line.
func (t *target) kept(role observe.Role) string {
	if t.embedded {
		return "kept in " + t.storeDir
	}
	return fmt.Sprintf("as the %s, projection in %s", role, t.storeDir)
}

// open opens the NATS server that the flags name.
func (f *serveFlags) open(database schema.DatabaseName, durability processor.Durability, logger *slog.Logger) (_ *target, err error) {
	t := &target{storeDir: f.storeDir}
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
		return t, t.openExternal(&f.external, database, logger)
	}
	return t, t.openEmbedded(f, database, durability, logger)
}

func (t *target) openEmbedded(f *serveFlags, database schema.DatabaseName, durability processor.Durability, logger *slog.Logger) error {
	server, err := embedded.Start(embedded.Options{
		StoreDir:   f.storeDir,
		Listen:     f.listen,
		Database:   database,
		SyncAlways: durability == processor.Fsync,
		Logger:     logger,

		AcceptLostEnd: f.acceptLostEnd,
		Known: func(prefix string) embedded.Extent {
			extent := eventlog.ReadExtent(projectionDir(f.storeDir, database), prefix)
			return embedded.Extent{Seq: extent.Seq, Judged: extent.Judged, By: "what was acknowledged"}
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
	t.Stage = server.Stage(database)
	return t.keep(&t.Service)(server.ConnectService())
}

// keep stores a new connection in *as, and closes it in close.
func (t *target) keep(as **nats.Conn) func(*nats.Conn, error) error {
	return func(nc *nats.Conn, err error) error {
		if err == nil {
			*as = nc
			t.closers = append(t.closers, nc.Close)
		}
		return err
	}
}

func (t *target) openExternal(f *externalFlags, database schema.DatabaseName, logger *slog.Logger) error {
	if err := t.openConnections(f, database, logger); err != nil {
		return err
	}
	return t.openGate(f, database, logger)
}

// openConnections locks the store directory and opens the connections of a processor.
func (t *target) openConnections(f *externalFlags, database schema.DatabaseName, logger *slog.Logger) (err error) {
	var lock io.Closer
	if lock, err = embedded.LockStore(t.storeDir); err != nil {
		return err
	}
	t.closers = append(t.closers, func() { _ = lock.Close() })
	if t.node, err = nodeName(t.storeDir); err != nil {
		return err
	}
	for name, as := range map[string]**nats.Conn{logConnection: &t.Log, bulkConnection: &t.Bulk, serviceConnection: &t.Service} {
		if err := t.keep(as)(f.connect(name, database, logger)); err != nil {
			return err
		}
	}
	t.url = t.Log.ConnectedUrlRedacted()
	return nil
}

// openGate opens a gate if flags name its two connections. Clients without
// permissions on the streams read the log through it.
func (t *target) openGate(f *externalFlags, database schema.DatabaseName, logger *slog.Logger) error {
	if !f.named(gateLogConnection) && !f.named(gateClientsConnection) {
		return nil
	}
	var streams, clients *nats.Conn
	for name, as := range map[string]**nats.Conn{gateLogConnection: &streams, gateClientsConnection: &clients} {
		if err := t.keep(as)(f.connect(name, database, logger)); err != nil {
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
	g, err := gate.Open(clients, streams, database, logger)
	if err != nil {
		return err
	}
	go eventlog.KeepTogether(ctx, t.Log, streams, clients)
	t.closers = append(t.closers, g.Close)
	return nil
}

// togetherTimeout bounds how long a start waits for the connections of a gate to move to
// the server of the others. They move later, too.
const togetherTimeout = 5 * time.Second

// logLosses logs when a connection of a gate is lost and back; the processor logs those
// of its own. A move to the server of the other connections is no loss.
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
