// Package monitor reports the state of a processor to an operator: metrics, liveness,
// readiness and status.
//
// It imports observe, projections and schema; the processor reaches it as a Source. Start
// reading at Monitor; metrics.go has the metrics computed at a scrape, meters.go those
// counted as events happen.
package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// Health is judged from events (Listener) and from state in memory, never by asking:
// whoever asks /healthz must get an answer while a disk or NATS hangs. Three verdicts, each
// with reasons in words:
//
//	Live    a restart of the process would help: it has failed, or the writer's loop stands still
//	Ready   requests are answered well: connected, caught up, log and lease reachable, clock right
//	Status  numbers, from the processor itself
//
// The processor comes and goes while the monitor stays: a start that takes long has a
// monitor and no source. use locks the source for reading, so that Stopped returns only
// when nobody uses it.

// Monitor reports whether a processor is alive and ready, and its metrics. It is made
// before the processor and passed to it as Options.Monitor, so it also reports the
// progress of the start. Its methods may be called from any goroutine; Live and Ready use
// only state in memory, without I/O.
type Monitor struct {
	database  schema.DatabaseName
	Version   string        // set when the processor starts
	Process   string        // likewise: id of the process
	Objective time.Duration // likewise
	*meters

	beaten   atomic.Int64 // last Beat of the writer's loop, ns since 1970
	pending  atomic.Int64 // events in flight
	slowed   atomic.Uint64
	refusing atomic.Bool // the log accepts the fence and nothing else
	listener atomic.Pointer[observe.EventListener]
	doing    atomic.Value // string

	using   sync.RWMutex // read-locked while the source is in use: Stopped waits for that
	running Source       // nil while the processor does not serve

	mu    sync.Mutex
	state health
	sampler
	storage storage
}

// health is the state that the Monitor has from events. Monitor.mu guards it. Pairs of a
// time and an error are about something unreachable: since when, and why.
type health struct {
	began       time.Time
	progress    observe.CatchingUp
	caughtUp    bool
	ended       string // why nothing is served now
	idle        bool   // nothing is to be served
	failed      error
	role        observe.Role
	logSince    time.Time // when the log became unreachable, zero while it is reachable
	logErr      error
	mutations   time.Time // the same for mutations
	mutationErr error
	leaseSince  time.Time // when a standby became unable to take over, zero while it is able to
	leaseErr    error
	connections map[string]*connection
	counts      eventCounts
}

// eventCounts has counts of events of an EventListener.
type eventCounts struct {
	roleChanges, fenceMoves, appendFailures, logOutages  uint64
	snapshotsUseless, projectionsRemade, requestFailures uint64
}

// connection is a connection to NATS.
type connection struct {
	nc    *nats.Conn
	since time.Time // when it was lost, zero while it is up
	err   error
}

// NewMonitor returns the monitor of a processor that has not started.
func NewMonitor(database schema.DatabaseName) *Monitor {
	return &Monitor{
		database: database,
		meters:   newMeters(prometheus.Labels{"database": string(database)}),
		state:    health{began: time.Now(), connections: map[string]*connection{}},
	}
}

// Database returns the name of the processor's database.
func (m *Monitor) Database() schema.DatabaseName { return m.database }

// Doing returns the current step of the start or stop: the step that hangs if the start
// or stop does not end.
func (m *Monitor) Doing() string {
	doing, _ := m.doing.Load().(string)
	return cmp.Or(doing, "starting")
}

// At sets the step that Doing returns.
func (m *Monitor) At(doing string) { m.doing.Store(doing) }

// Source has the state of a processor while it serves. Its methods may be called from
// any goroutine.
type Source interface {
	// Sample returns the state known to the process, without I/O.
	Sample() Sample
	// Health asks Pebble and the file system.
	Health() projections.Health
	// Memory asks Pebble, Go's runtime and the system.
	Memory() schema.Memory
	// Ends asks NATS where the log and the mutations end.
	Ends(ctx context.Context) (StreamEnds, error)
	// Usage asks NATS, and the disk if lapse runs the server, for the space of the streams.
	Usage(ctx context.Context) (Usage, error)
	// CountDocuments counts the documents of all collections. It may take seconds
	// while many are overdue.
	CountDocuments() (DocumentCounts, error)
	// Status returns the body of a status reply.
	Status(ctx context.Context) (schema.Status, error)
}

// Sample is the state of a process at one time.
type Sample struct {
	Role      observe.Role // Standby also for a writer whose lease has expired
	Cursor    projections.Cursor
	Appended  uint64 // bytes of event bodies appended by this process
	Clock     schema.Clock
	Answered  []observe.Answered
	Queues    []observe.Queue
	Held      int64           // bytes of requests without a reply
	Failure   error           // of the projection, nil for none
	Snapshots *SnapshotSample // nil if snapshots are off
}

// SnapshotSample is the state of scheduled snapshots and retention.
type SnapshotSample struct {
	Made, Failed int64
	Newest       *schema.Snapshot // newest sound one, nil for none
}

// StreamEnds are the first and last sequence of the log, and the number of published
// mutations not yet decided.
type StreamEnds struct{ First, Last, Behind uint64 }

// DocumentCounts are the sums over all collections.
type DocumentCounts struct {
	Collections int
	projections.Counts
}

// emit returns the event listener of the last started processor; one that does nothing if
// none has started.
func (m *Monitor) emit() observe.EventListener {
	if all := m.listener.Load(); all != nil {
		return *all
	}
	return func(observe.Event) {}
}

// beginAnew forgets what the previous role, or an attempt at one, could not read: the next
// one reports what it can't.
func (h *health) beginAnew() {
	h.logSince, h.logErr = time.Time{}, nil
	h.mutations, h.mutationErr = time.Time{}, nil
}

// Listener returns a listener that records the events that health and metrics need.
func (m *Monitor) Listener() observe.EventListener {
	return func(e observe.Event) {
		m.mu.Lock()
		defer m.mu.Unlock()
		h := &m.state
		switch e := e.(type) {
		case observe.RoleChanged:
			m.beaten.Store(0) // a writer's loop begins, or has ended
			m.pending.Store(0)
			m.refusing.Store(false)
			h.role = e.To
			h.counts.roleChanges++
			h.leaseSince, h.leaseErr = time.Time{}, nil
			h.beginAnew()
		case observe.TakeoverFailed:
			h.beginAnew()
		case observe.FenceMoved:
			h.counts.fenceMoves++
		case observe.AppendFailed:
			h.counts.appendFailures++
		case observe.LogUnreachable:
			if h.logSince.IsZero() {
				h.counts.logOutages++
			}
			h.logSince, h.logErr = e.Since, e.Err
		case observe.LogReachable:
			h.logSince, h.logErr = time.Time{}, nil
		case observe.LeaseUnreachable:
			h.leaseSince, h.leaseErr = time.Now(), e.Err
		case observe.LeaseReachable:
			h.leaseSince, h.leaseErr = time.Time{}, nil
		case observe.AppendsRejected:
			m.refusing.Store(true)
		case observe.MutationsUnreachable:
			h.mutations, h.mutationErr = e.Since, e.Err
		case observe.MutationsReachable:
			h.mutations, h.mutationErr = time.Time{}, nil
		case observe.ConnectionLost:
			if c := h.connections[e.Connection]; c != nil {
				c.since, c.err = time.Now(), e.Err
			}
		case observe.ConnectionBack:
			if c := h.connections[e.Connection]; c != nil {
				c.since, c.err = time.Time{}, nil
			}
		case observe.CatchingUp:
			h.progress = e
		case observe.CaughtUp:
			h.caughtUp = true
		case observe.RequestFailed:
			h.counts.requestFailures++
		case observe.SnapshotUnusable:
			h.counts.snapshotsUseless++
		case observe.ProjectionRemade:
			h.counts.projectionsRemade++
		case observe.Failed:
			h.failed = e.Err
		}
	}
}

// Starting records that a processor starts, its event listener, and its connections by
// name; nil ones are left out. It clears what an earlier processor has left in the state,
// since a database that failed is started again.
func (m *Monitor) Starting(events observe.EventListener, over map[string]*nats.Conn) {
	m.listener.Store(&events)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.connections = make(map[string]*connection)
	for name, nc := range over {
		if nc != nil {
			m.state.connections[name] = &connection{nc: nc}
		}
	}
	m.state.caughtUp, m.state.ended, m.state.idle, m.state.failed, m.state.progress = false, "", false, nil, observe.CatchingUp{}
}

// Serving records the source of a processor that now serves.
func (m *Monitor) Serving(from Source) {
	m.using.Lock()
	defer m.using.Unlock()
	m.running = from
}

// Stopping records that the processor begins to stop.
func (m *Monitor) Stopping() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.ended = "stopping"
}

// Stopped records that the processor no longer serves. It returns once the source is not
// in use.
func (m *Monitor) Stopped() {
	m.using.Lock()
	defer m.using.Unlock()
	m.running = nil
}

// Idle records that other processes serve the database, and this one need not.
func (m *Monitor) Idle() {
	m.At("idle")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.idle, m.state.failed, m.state.role = true, nil, observe.None
}

// use returns the source, nil for none. It stays usable until done is called.
func (m *Monitor) use() (from Source, done func()) {
	m.using.RLock()
	return m.running, m.using.RUnlock
}

// Watch emits ConnectionLost and ConnectionBack until ctx ends. Its handlers stay on the
// connections, since the handlers of other databases may call them.
func (m *Monitor) Watch(ctx context.Context) {
	m.mu.Lock()
	connections := maps.Clone(m.state.connections)
	m.mu.Unlock()
	var watching sync.WaitGroup
	for name, c := range connections {
		losses, before := make(chan error, 1), c.nc.DisconnectErrHandler()
		c.nc.SetDisconnectErrHandler(func(nc *nats.Conn, err error) {
			select {
			case losses <- err:
			default: // one loss is enough to wake the watcher
			}
			if before != nil {
				before(nc, err)
			}
		})
		watching.Go(func() { m.watchOne(ctx, name, c.nc, losses) })
	}
	watching.Wait()
}

// checkInterval is the interval at which a connection is checked without a signal: nats.go
// drops signals that are not received at once.
const checkInterval = 5 * time.Second

// errGivenUp is the reason of a loss for which nats.go gives none.
var errGivenUp = errors.New("given up, to connect to another server")

// watchOne is Watch for one connection; losses receives the reasons of its losses.
func (m *Monitor) watchOne(ctx context.Context, name string, nc *nats.Conn, losses <-chan error) {
	changes := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(changes)
	ticks := time.NewTicker(checkInterval)
	defer ticks.Stop()
	var lost time.Time
	var err error
	signalled := false // there was a loss, even if it is connected again
	for {
		connected := nc.IsConnected()
		if lost.IsZero() && (signalled || !connected) {
			lost = time.Now()
			m.emit()(observe.ConnectionLost{Connection: name, Err: cmp.Or(err, nc.LastError(), errGivenUp)})
		}
		if !lost.IsZero() && connected {
			m.emit()(observe.ConnectionBack{Connection: name, Server: nc.ConnectedUrlRedacted(), After: time.Since(lost)})
			lost = time.Time{}
		}
		err, signalled = nil, false
		select {
		case err = <-losses:
			signalled = true
		case <-changes:
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// hungAfter is the maximum duration of one turn of the writer. Everything that it waits
// for times out earlier.
const hungAfter = time.Minute

// Live returns the reason why the process should be restarted, nil if there is none. NATS
// being away is none: a restart would not bring it back.
func (m *Monitor) Live() error {
	m.mu.Lock()
	failed, role := m.state.failed, m.state.role
	m.mu.Unlock()
	if failed != nil {
		return failed
	}
	p, done := m.use()
	defer done()
	if p == nil {
		return nil
	}
	if failure := p.Sample().Failure; failure != nil {
		return failure
	}
	beaten := m.beaten.Load()
	if quiet := time.Since(time.Unix(0, beaten)); role == observe.Writer && beaten != 0 && quiet > hungAfter {
		return fmt.Errorf("the writer has done nothing for %s", quiet.Round(time.Second))
	}
	return nil
}

// Ready returns the reasons why the process is not ready, in lines for an operator; none
// if it is ready.
func (m *Monitor) Ready() (reasons []string) {
	add := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	if err := m.Live(); err != nil {
		add("failed: %v", err)
	}
	m.mu.Lock()
	state := m.state
	state.connections = make(map[string]*connection, len(m.state.connections))
	for name, c := range m.state.connections {
		copied := *c
		state.connections[name] = &copied
	}
	m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(state.connections)) {
		if c := state.connections[name]; !c.nc.IsConnected() {
			add("NATS is away%s: the %s connection is %s%s", since(c.since), name, connectionState(c.nc), because(c.err))
		}
	}
	p, done := m.use()
	defer done()
	switch {
	case state.idle, p == nil && state.failed != nil: // other databases go on
		return reasons
	case state.ended != "":
		add("%s", state.ended)
		return reasons
	case p == nil && !state.caughtUp && state.progress.End > 0:
		add("not caught up: %d of %d events are folded, %d %%", state.progress.Seq, state.progress.End, 100*state.progress.Seq/state.progress.End)
		return reasons
	case p == nil:
		add("starting%s", since(state.began))
		return reasons
	}
	if !state.logSince.IsZero() {
		add("the log is unreachable%s%s", since(state.logSince), because(state.logErr))
	}
	if !state.mutations.IsZero() {
		add("published mutations are not read%s%s", since(state.mutations), because(state.mutationErr))
	}
	if !state.leaseSince.IsZero() {
		add("this standby cannot take over%s%s", since(state.leaseSince), because(state.leaseErr))
	}
	sample := p.Sample()
	if state.role == observe.Writer && sample.Role != observe.Writer {
		add("no longer the writer, and not yet a standby")
	}
	if m.refusing.Load() {
		add("the log rejects every append")
	}
	if clock := sample.Clock; clock.Suspect && state.role == observe.Writer {
		add("the clock is not trusted: %s", clock.Reason)
	}
	return reasons
}

// since describes since when, for a reason; "" for a zero time.
func since(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return fmt.Sprintf(" since %s (%s)", time.Since(at).Round(time.Second), observe.Timestamp(at))
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

func connectionState(nc *nats.Conn) string {
	switch nc.Status() {
	case nats.CLOSED:
		return "closed"
	case nats.RECONNECTING:
		return "reconnecting"
	}
	return "lost"
}

// Status returns the body of a status reply; the error is that lapse is starting, or idle.
func (m *Monitor) Status(ctx context.Context) (schema.Status, error) {
	p, done := m.use()
	defer done()
	if p != nil {
		return p.Status(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state.idle {
		return schema.Status{}, schema.ErrUnavailable.With("other processes serve database %s, this one has no copy of it", m.database)
	}
	return schema.Status{}, schema.ErrUnavailable.With("lapse is starting")
}
