package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/monitor"
	"github.com/lapsedb/lapse/schema"
)

// target is the NATS server that has the streams, embedded or external, with the
// connections of lapse to it.
//
// Connections: Log appends and manages the streams, Bulk reads them (nil, and thereby Log,
// on the embedded server), and each database has a connection for its requests. NATS
// delivers the messages of a connection one after the other, so a processor that reads
// slowly delays no other database. All but these are shared.
//
// A connection is kept from keep on: when nats.go gives it up for good, which it does after
// few errors only, closed gets the reason and the run ends. closers close in reverse order
// what was opened.
type target struct {
	Options                                                               // Databases are those of the server once it is open
	eventlog.Connections                                                  // without Service and Stage, which are per database
	services             []*nats.Conn                                     // one for each database
	peers                *nats.Conn                                       // that of an only database; else one that no slow processor blocks
	stage                func(schema.DatabaseName) func(bytes int) string // nil for an external server
	damage               func(schema.DatabaseName) error                  // damage of the streams; nil for an external server
	reload               func() error                                     // reads NATSConfig again; nil for an external server
	server               *embedded.Server                                 // nil for an external server
	client               func() (*nats.Conn, error)                       // connects as a client; nil for an external server
	address, url         string
	node                 string                 // see processor.Options
	limits               func() []monitor.Limit // see processor.Options
	noMoves              sync.Once              // warns that operators are not heard
	failed               <-chan error           // receives the error that ends an embedded server; nil for an external one

	kept    []*nats.Conn
	closed  chan error // receives why a kept connection is closed for good
	closers []func()
}

// wantedPayload is the max_payload in bytes that fits the largest document, 2 MiB, with its
// headers and reply.
const wantedPayload = 4 << 20

// warn logs a max_payload that is too small for the largest documents.
func (t *target) warn() {
	if payload := min(t.Log.MaxPayload(), t.services[0].MaxPayload()); payload < wantedPayload {
		t.Processor.Logger.Warn("max_payload of the NATS server is too small for documents of 2 MiB: set it to 4MB", "max_payload", payload)
	}
}

// close closes the connections and an embedded server, the last opened first.
func (t *target) close() {
	for i := len(t.closers) - 1; i >= 0; i-- {
		t.closers[i]()
	}
}

// of returns the connections of the i-th database. With an embedded server nobody else
// writes its streams (Only), and their files were checked before NATS opened them
// (Checked).
func (t *target) of(i int) eventlog.Connections {
	c := t.Connections
	c.Service, c.Shared = t.services[i], len(t.Databases) > 1
	if t.stage != nil {
		c.Stage, c.Checked, c.Only = t.stage(t.Databases[i]), true, true // the embedded server has checked the files
	}
	return c
}

// hosted returns the processors to start, with the options that they have in common. With
// several databases each line of a log names its database.
func (t *target) hosted(o processor.Options, monitors []*monitor.Monitor) (all []*hosted) {
	logger := o.Logger
	for i, name := range t.Databases {
		o.Database, o.Dir, o.Monitor = name, projectionDir(t.StoreDir, name), monitors[i]
		o.ClockFile = clockFile(t.StoreDir, i, name)
		if len(t.Databases) > 1 {
			o.Logger = logger.With("database", string(name))
		}
		db := &hosted{name: name, connections: t.of(i), options: o, changed: make(chan struct{}, 1)}
		if t.damage != nil {
			db.damage = t.damage(name)
		}
		all = append(all, db)
	}
	return all
}

// open opens the NATS server. After an error everything is closed again.
func (o Options) open() (_ *target, err error) {
	t := newTarget(o)
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if o.External == nil {
		return t, t.openEmbedded()
	}
	if o.Listen != "" {
		o.Processor.Logger.Warn("--listen is ignored: it is for the embedded NATS server, and --nats-url or --context is given", "listen", o.Listen)
	}
	return t, t.openExternal()
}

// newTarget returns a target with nothing open.
func newTarget(o Options) *target { return &target{Options: o, closed: make(chan error, 1)} }

// openEmbedded starts the embedded server, which checks the files of the streams first.
// Known tells it how far each log went by its last acknowledgement, so that it notices a
// lost end; an error of its configuration is one of options.
func (t *target) openEmbedded() (err error) {
	if t.Databases == nil {
		if t.Databases, err = storedDatabases(t.StoreDir); err != nil {
			return err
		}
	}
	o := t.embedded()
	o.SyncAlways, o.Logger, o.AcceptLostEnd = t.Processor.Durability != processor.OS && t.Test == nil, t.Processor.Logger, t.Processor.AcceptLostEnd
	o.Known = func(database schema.DatabaseName, prefix string) eventlog.Extent {
		return eventlog.ReadExtent(projectionDir(t.StoreDir, database), prefix)
	}
	server, err := embedded.Start(o)
	if wrong, ok := errors.AsType[*embedded.ConfigError](err); ok {
		return optionsErrorf("%v", wrong)
	}
	if err != nil {
		return err
	}
	t.server = server
	t.closers = append(t.closers, server.Shutdown)
	if t.node, err = nodeName(t.StoreDir, t.Processor.Logger); err != nil {
		return err
	}
	t.address, t.url, t.failed = server.Address(), server.URL(), server.Failed()
	if err := t.register(&t.Log)(server.ConnectLog()); err != nil {
		return err
	}
	t.stage, t.damage, t.reload = server.Stage, server.Damage, server.Reload
	t.client = func() (*nats.Conn, error) { return server.ConnectClient(nats.Name("lapse console")) }
	t.limits = func() []monitor.Limit {
		used, most, disk := server.Space()
		var u monitor.Usage
		u.AddLimit("server", most, used, 1)
		u.AddLimit("disk", disk, used, 1)
		return u.Limits
	}
	return t.openServices(func(schema.DatabaseName) (*nats.Conn, error) { return server.ConnectService() })
}

// openServices opens a request connection for each database, so that a processor that
// stops reading its own does not block the requests of the others.
func (t *target) openServices(connect func(schema.DatabaseName) (*nats.Conn, error)) error {
	t.services = make([]*nats.Conn, len(t.Databases))
	for i, name := range t.Databases {
		if err := t.register(&t.services[i])(connect(name)); err != nil {
			return err
		}
	}
	if t.peers = t.services[0]; len(t.Databases) > 1 {
		return t.register(&t.peers)(connect(""))
	}
	return nil
}

// register stores a new connection in *as, watches it, and closes it in close. It takes the two
// results of a function that connects:
//
//	t.register(&t.Log)(server.ConnectLog())
func (t *target) register(as **nats.Conn) func(*nats.Conn, error) error {
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

// endAsTwin ends Run because an older process has the name of this one, which it forgets.
// Two processes with one name come of a copied store directory, as of a cloned disk; to the
// lease and to other processes they would be one.
func (t *target) endAsTwin(other schema.Presence) {
	_ = os.Remove(filepath.Join(t.StoreDir, nodeFile))
	select {
	case t.closed <- fmt.Errorf("another process, on host %s, has the id %s of this one, whose store directory %s is a copy: start this one again: it then has a new id", other.Host, t.node, t.StoreDir):
	default: // one error is enough to end serve
	}
}

// closedForGood returns why nats.go has closed a connection, and what to do.
func closedForGood(nc *nats.Conn) error {
	why := cmp.Or(nc.LastError(), nats.ErrConnectionClosed)
	return fmt.Errorf("NATS closed the connection %q for good: %w: see the log of the NATS server, and start lapse again", nc.Opts.Name, why)
}

// whileOpen returns a context that ends when the embedded server fails or a connection
// is closed for good. end stops the watch and returns the error.
func (t *target) whileOpen(ctx context.Context) (_ context.Context, end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	failure := make(chan error, 1)
	go func() {
		defer close(failure)
		var err error
		select {
		case err = <-t.failed:
		case err = <-t.closed:
		case <-ctx.Done():
			return
		}
		failure <- err
		cancel()
	}()
	return ctx, func() error { cancel(); return <-failure }
}
