package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/gate"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// An external NATS server is reached by connections with names, each with a user of its own
// where the operator wants that (Options.External). Here they are opened, in this order:
// the lock of the store directory, the name of this process, Log and Bulk, a connection for
// the requests of each database, and the gate.
//
// Connections that belong together should be on one server of a cluster: a server that is
// cut off then takes all of them, and the process notices, instead of being a writer that
// no client reaches. eventlog.BringTo and KeepTogether move them, at the start and whenever
// nats.go has reconnected one to another server.

func (t *target) openExternal() error {
	if err := t.openConnections(); err != nil {
		return err
	}
	if len(t.Databases) > 1 { // for a single one the processor does it
		ctx, cancel := context.WithCancel(context.Background())
		t.closers = append(t.closers, cancel)
		bringing, brought := context.WithTimeout(ctx, togetherTimeout)
		eventlog.BringTo(bringing, t.Log, t.Bulk)
		brought()
		go eventlog.KeepTogether(ctx, t.Log, t.Bulk)
	}
	return t.openGate()
}

// openConnections locks the store directory and opens the connections of processors. If
// no databases are named, it uses those of the server.
func (t *target) openConnections() (err error) {
	var lock io.Closer
	if lock, err = embedded.LockStore(t.StoreDir); err != nil {
		return err
	}
	t.closers = append(t.closers, func() { _ = lock.Close() })
	if t.node, err = nodeName(t.StoreDir, t.Processor.Logger); err != nil {
		return err
	}
	for name, as := range map[string]**nats.Conn{LogConnection: &t.Log, BulkConnection: &t.Bulk} {
		if err := t.register(as)(t.connect(name, t.sharedBy())); err != nil {
			return err
		}
	}
	t.url = t.Log.ConnectedUrlRedacted()
	if t.Databases == nil {
		if t.Databases, err = remoteDatabases(t.Log); err != nil {
			return err
		}
	}
	return t.openServices(func(database schema.DatabaseName) (*nats.Conn, error) {
		return t.connect(ServiceConnection, database)
	})
}

// sharedBy returns the database for the names of shared connections, "" for several.
func (t *target) sharedBy() schema.DatabaseName {
	if len(t.Databases) == 1 {
		return t.Databases[0]
	}
	return ""
}

// openGate opens the gate, if there is one. Clients without permissions on the streams read
// the log through it.
func (t *target) openGate() error {
	if !t.External.Gate {
		return nil
	}
	var streams, clients *nats.Conn
	for name, as := range map[string]**nats.Conn{GateLogConnection: &streams, GateClientsConnection: &clients} {
		if err := t.register(as)(t.connect(name, t.sharedBy())); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.closers = append(t.closers, cancel)
	bringing, brought := context.WithTimeout(ctx, togetherTimeout)
	defer brought()
	for name, nc := range map[string]*nats.Conn{GateLogConnection: streams, GateClientsConnection: clients} {
		eventlog.BringTo(bringing, t.Log, nc)
		logLosses(nc, t.Processor.Logger.With("connection", name))
	}
	t.reportSteerable()
	g, err := gate.Open(clients, streams, gate.Options{Databases: t.Databases, Logger: t.Processor.Logger})
	if err != nil {
		return err
	}
	go eventlog.KeepTogether(ctx, t.Log, streams, clients)
	t.closers = append(t.closers, g.Close)
	return nil
}

// reportSteerable reports the first server with a connection of lapse that is steerable.
func (t *target) reportSteerable() {
	for _, nc := range t.kept {
		if version := nc.ConnectedServerVersion(); gate.Steerable(version) {
			observe.TeeEventListener(observe.LoggingEventListener(t.Processor.Logger), t.Processor.Events)(observe.ServerSteerable{URL: nc.ConnectedUrlRedacted(), Version: version})
			return
		}
	}
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

// connect opens a named connection for a database, or for several if database is "". Its
// name in the lists of NATS is "lapse main service". Errors of nats.go in the background
// are logged, but for slow consumers, which read again what they missed.
func (t *target) connect(name string, database schema.DatabaseName) (*nats.Conn, error) {
	dialer := &eventlog.Dialer{}
	options := append(eventlog.ConnectOptions(), dialer.Option(),
		nats.Name(strings.Join(strings.Fields("lapse "+string(database)+" "+name), " ")),
		nats.CustomInboxPrefix(inboxPrefix(name)),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			switch {
			case errors.Is(err, nats.ErrSlowConsumer): // it rereads the messages that it missed
			case errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), ".api."+schema.MoveOperation):
				t.noMoves.Do(func() { t.Processor.Logger.Warn(noMoves, "connection", name) })
			case client.IsLogin(err):
				t.Processor.Logger.Warn("NATS refuses the credentials: renew them, lapse goes on trying", "connection", name, "err", err)
			default:
				t.Processor.Logger.Warn("nats: "+err.Error(), "connection", name)
			}
		}))
	nc, err := t.External.Connect(name, options...)
	dialer.Connected()
	return nc, err
}

// noMoves says what a configuration of NATS lacks without which all else works.
const noMoves = "NATS does not let this process hear operators, so lapse move does nothing here: " +
	"let the user of connection log subscribe to lapse.<db>.api.move"

// inboxPrefix returns the prefix of a connection's reply subjects. The default _INBOX.
// may be exported from the account of the streams to clients; the other names show an
// operator which connection subscribes.
func inboxPrefix(name string) string {
	prefix := "_PROCESSOR."
	switch name {
	case BulkConnection: // is not permitted to read replies to the log connection
		prefix = "_BULK."
	case ServiceConnection:
		prefix = "_SERVICE."
	case GateLogConnection, GateClientsConnection:
		return "_GATE"
	}
	return prefix + rand.Text()
}

// nodeFile is the file of a store directory with the name of its process.
const nodeFile = "node"

// nodeName returns the random name that the store directory keeps over restarts. It renews
// one that is damaged. The name is in the lease, in status and in `lapse move`; it is
// stored in the directory since this is what a process keeps.
func nodeName(storeDir string, logger *slog.Logger) (string, error) {
	path := filepath.Join(storeDir, nodeFile)
	text, err := embedded.ReadFile(path)
	name := strings.TrimSpace(string(text))
	switch {
	case err == nil && validNode.MatchString(name):
		return name, nil
	// An empty or cut file is what a power cut leaves. The other processes see a new one
	// come and the old one go.
	case err == nil || len(text) > 0:
		logger.Warn("the name of this process is damaged: it has a new one", "file", path)
	case !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("cannot read %s: %w; choose another --store-dir", path, err)
	}
	name = rand.Text()
	if err := os.WriteFile(path, []byte(name+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("cannot write to the store directory %s: %w; choose another one with --store-dir", storeDir, err)
	}
	return name, nil
}

// validNode matches a name, which is a token of subjects.
var validNode = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
