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

// place is where a database is served: an embedded NATS server, or one elsewhere.
type place struct {
	eventlog.Connections
	url         string
	storeDir    string
	embedded    bool
	atomicBatch int // see processor.Options, as are these
	lease       time.Duration
	node        string
	failed      <-chan error // says why NATS, if it is ours, is of no use any more

	closers []func()
}

// wantedPayload is the largest message of NATS with which documents of all sizes
// can be stored, and read back with what is around them.
const wantedPayload = 4 << 20

// warn says what is not as it could be.
func (p *place) warn(logger *slog.Logger) {
	if payload := min(p.Log.MaxPayload(), p.Service.MaxPayload()); payload < wantedPayload {
		logger.Warn("the NATS server takes no documents of 2 MiB: set its max_payload to 4MB for documents of all sizes", "max_payload", payload)
	}
}

// close ends the connections and what is ours of NATS, the last thing first.
func (p *place) close() {
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.closers[i]()
	}
}

// kept says where things are, and who writes.
func (p *place) kept(role observe.Role) string {
	if p.embedded {
		return "kept in " + p.storeDir
	}
	return fmt.Sprintf("as the %s, projection in %s", role, p.storeDir)
}

// open opens the place that the flags name.
func (f *serveFlags) open(database schema.DatabaseName, durability processor.Durability, logger *slog.Logger) (_ *place, err error) {
	p := &place{storeDir: f.storeDir}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if f.elsewhere.given() {
		if f.listenGiven {
			logger.Warn("--listen is of the embedded NATS server, of which there is none with --nats-url or --context", "listen", f.listen)
		}
		p.lease = f.lease
		return p, p.openElsewhere(&f.elsewhere, database, logger)
	}
	return p, p.openEmbedded(f, database, durability, logger)
}

func (p *place) openEmbedded(f *serveFlags, database schema.DatabaseName, durability processor.Durability, logger *slog.Logger) error {
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
	p.closers = append(p.closers, server.Shutdown)
	p.url, p.embedded, p.atomicBatch, p.failed = server.URL(), true, embedded.AtomicBatch, server.Failed()
	if err := p.keep(&p.Log)(server.ConnectLog()); err != nil {
		return err
	}
	return p.keep(&p.Service)(server.ConnectService())
}

// keep has a connection that was made closed at the end.
func (p *place) keep(as **nats.Conn) func(*nats.Conn, error) error {
	return func(nc *nats.Conn, err error) error {
		if err == nil {
			*as = nc
			p.closers = append(p.closers, nc.Close)
		}
		return err
	}
}

func (p *place) openElsewhere(f *elsewhereFlags, database schema.DatabaseName, logger *slog.Logger) error {
	if err := p.openConnections(f, database, logger); err != nil {
		return err
	}
	return p.openGate(f, database, logger)
}

// openConnections locks the store directory and opens what a processor needs.
func (p *place) openConnections(f *elsewhereFlags, database schema.DatabaseName, logger *slog.Logger) (err error) {
	var lock io.Closer
	if lock, err = embedded.LockStore(p.storeDir); err != nil {
		return err
	}
	p.closers = append(p.closers, func() { _ = lock.Close() })
	if p.node, err = nodeName(p.storeDir); err != nil {
		return err
	}
	for name, as := range map[string]**nats.Conn{logConnection: &p.Log, bulkConnection: &p.Bulk, serviceConnection: &p.Service} {
		if err := p.keep(as)(f.connect(name, database, logger)); err != nil {
			return err
		}
	}
	p.url = p.Log.ConnectedUrlRedacted()
	return nil
}

// openGate opens a gate if the users for it are named. Where permissions keep
// clients from the streams, they read the log through it.
func (p *place) openGate(f *elsewhereFlags, database schema.DatabaseName, logger *slog.Logger) error {
	if !f.named(gateLogConnection) && !f.named(gateClientsConnection) {
		return nil
	}
	var streams, clients *nats.Conn
	for name, as := range map[string]**nats.Conn{gateLogConnection: &streams, gateClientsConnection: &clients} {
		if err := p.keep(as)(f.connect(name, database, logger)); err != nil {
			return err
		}
	}
	g, err := gate.Open(clients, streams, database, logger)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go eventlog.KeepTogether(ctx, p.Log, streams, clients)
	p.closers = append(p.closers, cancel, g.Close)
	return nil
}
