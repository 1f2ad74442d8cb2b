// Package service receives requests and replies to them: reads from the projection on
// workers, mutations through the writer.
//
// It imports peers, answer, writer, eventlog, lease, snapshot, machine, clock and observe. Start
// reading at handle (intake.go), where a request arrives; then request.go (dispatch and
// reply), lane.go and fairqueue.go (queues), reads.go, query.go and snapshots.go (the
// operations). peers decides whether a document has expired or was renewed.
package service

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/peers"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

const (
	maxWaiting    = 1024             // requests that wait for a sequence or a renewal
	serveTimeout  = 10 * time.Second // for NATS to confirm the first subscriptions
	becomeTimeout = time.Second      // for NATS to confirm those of a new role
)

// Config of a Service; see processor.Options.
type Config struct {
	Database schema.DatabaseName
	Version  string
	Events   observe.EventListener
	Meter    Meter
	Storage  func() *schema.Storage // the space of the streams as of the last sample
	Memory   func() schema.Memory
	Process  *peers.Process
	// ClientsApart: requests come from another account than that of the streams.
	ClientsApart bool

	Queue     int // proposals and reads that may wait, each
	Workers   int
	AllHeld   *atomic.Int64 // Held of all services in the process
	HeldBytes int64         // the most of it
	Query     query.Limits

	QueryWorkers, QueryQueue int
}

// Meter counts requests; it must not block.
type Meter interface {
	// Answered is called for each reply with the schema.OperationIndex of the request,
	// the time since its arrival, and its headers.
	Answered(operation int, took time.Duration, header schema.Header)
}

// Service answers requests: reads from the projection on a limited number of workers,
// mutations through the writer.
type Service struct {
	Config    Config
	NC        *nats.Conn
	Store     *projections.Store
	Log       *eventlog.Log
	Mutations *eventlog.Mutations
	Writer    *writer.Writer
	Retention *snapshot.Retention
	Clock     *clock.Timekeeper
	Lease     *lease.Lease // nil without standbys
	Liveness  *peers.Liveness
	Operations

	roles     sync.Mutex
	endpoints *endpoints // of the role now
	ended     bool       // Stop was called: Become does nothing
	// subscriptions is the number of those in endpoints: all of the connection but ofProcess.
	subscriptions atomic.Int64
	writes        atomic.Bool // the role is that of the writer
	obstacle      atomic.Pointer[string]

	peers     *peers.Peers
	reading   reading
	Held      atomic.Int64 // bytes of requests without a reply
	accepting sync.RWMutex // locked for reading by each request without a reply

	// Each class of work has its own queue, so slow requests cannot delay fast ones;
	// within it each client has its share, so one client cannot delay the others.
	clients *clients
	gets    *Lane // document.get
	reads   *Lane // other reads: those of many documents or of the log
	large   *Lane // large bodies, to parse
	queries *Lane

	Engine   *query.Engine
	waiting  atomic.Int64 // requests that wait for a sequence or a renewal
	workers  sync.WaitGroup
	ctx      context.Context // ends when the service does
	cancel   context.CancelFunc
	MaxReply int       // bytes of a reply's body
	replies  sync.Pool // of *eventlog.ReusedMessage
}

// Serve starts to answer requests on nc, in a role. After an error nothing runs.
func (s *Service) Serve(nc *nats.Conn, role observe.Role) error {
	s.NC = nc
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.MaxReply = int(nc.MaxPayload()) - schema.HeaderRoom
	s.clients = newClients()
	s.gets = s.lane(s.Config.Queue, s.Config.Workers, tooManyRequests)
	s.reads = s.lane(s.Config.Queue, s.Config.Workers, tooManyRequests)
	s.large = s.lane(s.Config.Queue, max(2, runtime.GOMAXPROCS(0)/2), tooManyRequests)
	s.queries = s.lane(s.Config.QueryQueue, s.Config.QueryWorkers, tooManyQueries)
	s.peers = peers.New(nc, peers.Config{Database: s.Config.Database, Process: s.Config.Process, Store: s.Store, Log: s.Log, Clock: s.Clock,
		Renewals: &s.Writer.Renewals, OnlyWriter: s.OnlyWriter, Count: s.count})
	s.Liveness = s.peers.Liveness
	s.reading.throttle(nc)
	if err := s.Become(role); err != nil {
		s.cancel()
		s.workers.Wait()
		return err
	}
	if s.Lease != nil {
		s.workers.Go(func() { s.peers.Watch(s.ctx) })
	}
	return nil
}

// Stop unsubscribes. The writer answers requests that have arrived as long as it runs;
// Finish answers the rest.
func (s *Service) Stop() error {
	s.roles.Lock()
	defer s.roles.Unlock()
	s.ended = true
	s.peers.Withdraw()
	err := s.endpoints.stop()
	waitUntil(writer.StopTimeout, func() bool { return s.NC.NumSubscriptions() <= s.ofProcess() || s.NC.IsClosed() })
	waitUntil(writer.StopTimeout, func() bool { return s.large.len() == 0 })
	return err
}

// ofProcess returns the number of subscriptions at the connection that are none of a role.
func (s *Service) ofProcess() int { return len(s.peers.Process.Subjects(s.NC)) }

// Settle returns when all requests that NATS has delivered before are answered. Later ones
// wait meanwhile. First what the server has sent arrives (FlushTimeout), then the handlers
// have had it (Barrier), then no request is open (open.Lock). It is for a test's clock,
// which moves between requests.
func (s *Service) Settle() error {
	if err := s.NC.FlushTimeout(serveTimeout); err != nil {
		return err
	}
	handled := make(chan struct{})
	if err := s.NC.Barrier(func() { close(handled) }); err != nil {
		return err
	}
	<-handled
	s.accepting.Lock()
	defer s.accepting.Unlock()
	return nil
}

// Finish answers the remaining requests, after the writer has stopped, and waits for
// the workers.
func (s *Service) Finish() {
	waitUntil(writer.StopTimeout, func() bool { return s.gets.len() == 0 && s.reads.len() == 0 })
	s.cancel() // also of queries, which may take long
	s.workers.Wait()
	all := func(job) bool { return true }
	for _, lane := range []*Lane{s.large, s.reads, s.gets, s.queries} { // a request that waited for its Lapse-Min-Seq may come late
		for _, waiting := range lane.jobs.drop(all) {
			waiting.answer()
		}
	}
	s.workers.Wait()
	_ = s.NC.FlushTimeout(writer.StopTimeout)
}

// waitUntil polls, since nats.go does not signal the end of a drain.
func waitUntil(timeout time.Duration, done func() bool) {
	for deadline := time.Now().Add(timeout); !done() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// CannotTakeOver sets what Status says of a standby: why it cannot take over, nil if it can.
func (s *Service) CannotTakeOver(why error) {
	text := ""
	if why != nil {
		text = why.Error()
	}
	s.obstacle.Store(&text)
}

// OnlyWriter reports whether no other process can write now.
func (s *Service) OnlyWriter() bool {
	return s.writes.Load() && (s.Lease == nil || s.Lease.Held())
}
