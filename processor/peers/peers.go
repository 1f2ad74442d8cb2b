// Package peers knows the other processes that serve the same databases: which there are,
// how they stand, whether one hangs, and up to which second the writer has settled its state.
//
// It imports answer, writer, eventlog, machine, clock and observe. Start reading at Process
// (process.go), which is all databases of this process, and says of itself what a
// schema.Presence has; others.go asks the others. Peers (here) is one database; settled.go asks
// its writer. liveness.go builds on that: it decides whether a document has expired or was
// renewed.
package peers

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Config of Peers.
type Config struct {
	Database schema.DatabaseName
	Process  *Process
	Store    *projections.Store
	Log      *eventlog.Log
	Clock    *clock.Timekeeper
	Renewals *writer.Renewals
	// OnlyWriter reports whether no other process can write now, so that Renewals has
	// every renewal in flight.
	OnlyWriter func() bool
	// Count returns the requests that wait, and those so far with the failed ones.
	Count func() (waiting int, requests, failed uint64)
}

// Peers is one database of this process, among the processes that serve it.
type Peers struct {
	Config
	Liveness *Liveness
	nc       *nats.Conn

	announced atomic.Pointer[announced]
	end       atomic.Uint64 // of the log, when measured last
	behind    atomic.Int64  // by how many ms this process was behind it
}

// announced is the endpoints of a role, and their statistics.
type announced struct {
	endpoints []micro.EndpointInfo
	stats     func() []*micro.EndpointStats
}

// New returns the peers of a database, whose requests come by nc.
func New(nc *nats.Conn, c Config) *Peers {
	p := &Peers{Config: c, nc: nc}
	p.Liveness = &Liveness{Config: c, askWriter: p.askWriter}
	return p
}

// Announce has the process say that it serves the database by some endpoints. settles says that
// standbys may ask it for its Settlement. The caller drains the subscriptions, also after an
// error.
func (p *Peers) Announce(endpoints []micro.EndpointInfo, stats func() []*micro.EndpointStats, settles bool) (subscriptions []*nats.Subscription, err error) {
	subscribe := func(subject string, handle nats.MsgHandler) {
		if err != nil {
			return
		}
		var sub *nats.Subscription
		if sub, err = p.nc.Subscribe(subject, handle); err == nil {
			subscriptions = append(subscriptions, sub)
		}
	}
	// Processes of 0.3.0 ask those of their database whether they hang.
	subscribe(micro.APIPrefix+".PING"+ofLapse+"."+string(p.Database), func(m *nats.Msg) { p.Process.reply(m, micro.PingVerb) })
	if p.nc != p.Process.nc { // to be filled, too, where the process hangs
		subscribe(micro.APIPrefix+".PING"+ofLapse+"."+p.Process.ID, func(*nats.Msg) {})
	}
	if settles {
		subscribe(p.settledSubject(), p.vouch)
	}
	p.announced.Store(&announced{endpoints, stats})
	p.Process.mu.Lock()
	p.Process.serve[p.Database] = p
	p.Process.mu.Unlock()
	return subscriptions, err
}

// Withdraw has the process no longer say that it serves the database.
func (p *Peers) Withdraw() {
	p.Process.mu.Lock()
	if p.Process.serve[p.Database] == p {
		delete(p.Process.serve, p.Database)
	}
	p.Process.mu.Unlock()
	p.Process.Changed()
}

// standing returns how this process stands in the database.
func (p *Peers) standing() schema.Standing {
	s := schema.Standing{Database: p.Database, Role: schema.RoleCopy, Log: p.Log.Identity(), Seq: p.Store.Cursor().Seq}
	s.Waiting, s.Requests, s.Errors = p.Count()
	if p.OnlyWriter() {
		s.Role = schema.RoleWriter
		return s
	}
	s.Behind, s.BehindMs = max(p.end.Load(), s.Seq)-s.Seq, p.behind.Load()
	return s
}

// mostBehind: lag is reported up to it.
const mostBehind = time.Second

// Watch measures, twice in a lease, how far this process is behind the log, until ctx ends.
func (p *Peers) Watch(ctx context.Context) {
	next := time.NewTicker(p.Process.Lease / 2)
	defer next.Stop()
	for {
		p.measure(ctx)
		select {
		case <-next.C:
		case <-ctx.Done():
			return
		}
	}
}

// measure measures how long it takes to fold what is not folded: a second if it takes longer,
// or if the log does not answer.
func (p *Peers) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, mostBehind)
	defer cancel()
	began, took := time.Now(), mostBehind
	end, err := p.Log.Last(ctx)
	if err == nil {
		p.end.Store(end)
		if p.Store.Wait(ctx, end) == nil {
			took = time.Since(began)
		}
	}
	p.behind.Store(took.Milliseconds())
}
