// Package peers knows the other processes that serve the same database: which there are,
// whether one hangs, and up to which second the writer has settled its state.
//
// It imports answer, writer, eventlog, machine, clock and observe. Start reading at Peers
// (here): announce.go answers the discovery of NATS services, hung.go finds processes that
// no longer reply, settled.go asks the writer. liveness.go builds on that: it decides
// whether a document has expired or was renewed.
package peers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Config of Peers.
type Config struct {
	Database schema.DatabaseName
	Version  string
	Node     string // id of the process, the same over restarts
	Events   observe.EventListener
	Store    *projections.Store
	Log      *eventlog.Log
	Clock    *clock.Timekeeper
	Renewals *writer.Renewals
	// OnlyWriter reports whether no other process can write now, so that Renewals has
	// every renewal in flight.
	OnlyWriter func() bool
}

// Peers is this process among those of its database.
type Peers struct {
	Config
	Live    *Liveness
	nc      *nats.Conn
	id      string // of this process, until it ends
	started time.Time

	mu   sync.Mutex
	seen map[string]*peer // by id
}

// New returns the peers that are reached by nc.
func New(nc *nats.Conn, c Config) *Peers {
	p := &Peers{Config: c, nc: nc, id: rand.Text(), started: time.Now().UTC(), seen: make(map[string]*peer)}
	p.Live = &Liveness{Config: c, askWriter: p.askWriter}
	return p
}

// peerInbox begins the subjects of replies between processes: the connection may
// subscribe and publish below $SRV. and to requests only.
const peerInbox = micro.APIPrefix + ".REPLY."

// othersTimeout is how long to wait for replies of other processes, which take
// milliseconds.
const othersTimeout = 300 * time.Millisecond

// CheckOthers returns an error if a process answers requests for this database from
// another log: clients would get either, at random.
func CheckOthers(ctx context.Context, nc *nats.Conn, db schema.DatabaseName, log string) error {
	return askOthers(ctx, nc, db, func(info micro.Info) error {
		if theirs, ok := info.Metadata[metaLog]; !ok || theirs == log {
			return nil
		}
		return fmt.Errorf("another process serves database %s from a different log: use another --database, or stop that lapse", db)
	})
}

// CheckNobody returns an error if any process answers requests for the database: its log
// must not be replaced under it.
func CheckNobody(ctx context.Context, nc *nats.Conn, db schema.DatabaseName) error {
	return askOthers(ctx, nc, db, func(info micro.Info) error {
		return fmt.Errorf("a lapse serves database %s, as the %s: stop every lapse of this database before you begin a new log", db, info.Metadata[metaRole])
	})
}

// askOthers calls check with the info of each process that serves a database, until
// the first error.
func askOthers(ctx context.Context, nc *nats.Conn, db schema.DatabaseName, check func(micro.Info) error) error {
	inbox := peerInbox + rand.Text()
	replies := make(chan *nats.Msg, 1024) // processes times databases
	sub, err := nc.ChanSubscribe(inbox, replies)
	if err != nil {
		return fmt.Errorf("ask for other processes: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(micro.APIPrefix+".INFO.lapse", inbox, nil); err != nil {
		return fmt.Errorf("ask for other processes: %w", err)
	}
	timeout := time.NewTimer(othersTimeout)
	defer timeout.Stop()
	for {
		select {
		case m := <-replies:
			if m.Header.Get("Status") != "" {
				return nil // no responders
			}
			var info micro.Info
			if err := json.Unmarshal(m.Data, &info); err != nil || info.Metadata[metaDatabase] != string(db) {
				continue
			}
			if err := check(info); err != nil {
				return err
			}
		case <-timeout.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
