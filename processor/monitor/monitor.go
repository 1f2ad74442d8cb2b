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

// Monitor says how a processor is: whether it is alive and ready, and its
// metrics. One is made before the processor, given to it as Options.Monitor, and
// tells from then on how far it has come. Its methods may be called from any
// goroutine, and Live and Ready ask nobody: they are quick whatever happens.
type Monitor struct {
	database  schema.DatabaseName
	Version   string        // set when the processor starts
	Objective time.Duration // likewise
	*meters

	beaten   atomic.Int64 // when the writer's loop last went round, ns since 1970
	pending  atomic.Int64 // events decided and not yet folded
	slowed   atomic.Uint64
	refusing atomic.Bool // the log takes the fence and nothing else
	tell     atomic.Pointer[observe.EventListener]
	doing    atomic.Value // string

	using   sync.RWMutex // held by those who ask the processor: it ends after them
	running Source       // once it serves

	mu    sync.Mutex
	state health
	sampler
}

// health is what a Monitor was told.
type health struct {
	began       time.Time
	progress    observe.CatchingUp
	caughtUp    bool
	ended       string // why nothing is served any more
	failed      error
	role        observe.Role
	logSince    time.Time // when the log came out of reach, zero while it is not
	logErr      error
	mutations   time.Time // the same for mutations
	leaseErr    error     // why a standby cannot find out who writes
	connections map[string]*connection
	counts      eventCounts
}

// eventCounts count what an EventListener is told of.
type eventCounts struct {
	roleChanges, fenceMoves, appendFailures, logOutages, clockDoubts uint64
	snapshotsUseless, projectionsRemade, requestFailures             uint64
}

// connection is one to NATS.
type connection struct {
	nc    *nats.Conn
	since time.Time // when it was lost, zero while it is there
	err   error
}

// NewMonitor returns the monitor of a processor that is yet to be started.
func NewMonitor(database schema.DatabaseName) *Monitor {
	return &Monitor{
		database: database,
		meters:   newMeters(prometheus.Labels{"database": string(database)}),
		state:    health{began: time.Now(), connections: map[string]*connection{}},
	}
}

// Doing says what the processor does now, if it starts or stops: what hangs when
// that does not end.
func (m *Monitor) Doing() string {
	doing, _ := m.doing.Load().(string)
	return cmp.Or(doing, "starting")
}

// At takes note of what Doing says.
func (m *Monitor) At(doing string) { m.doing.Store(doing) }

// Source is what a Monitor looks things up in while a processor serves. Its
// methods may be called from any goroutine.
type Source interface {
	// Sample returns what the process knows by itself: it waits for nobody.
	Sample() Sample
	// Health asks Pebble and the file system.
	Health() projections.Health
	// Ends asks NATS where the log and the mutations end.
	Ends(ctx context.Context) (StreamEnds, error)
	// CountDocuments counts the documents of all collections. That may take
	// seconds while many are overdue.
	CountDocuments() (DocumentCounts, error)
	// Status says how the database is.
	Status(ctx context.Context) (schema.Status, error)
}

// Sample is what a process knows of itself at a moment.
type Sample struct {
	Cursor    projections.Cursor
	Appended  uint64 // bytes of the bodies that it appended
	Clock     schema.Clock
	Answered  []observe.Answered
	Queues    []observe.Queue
	Held      int64           // bytes of requests that have no reply yet
	Failure   error           // of the projection, nil while there is none
	Snapshots *SnapshotSample // nil where none are made
}

// SnapshotSample is what retention did.
type SnapshotSample struct {
	Made, Failed int64
	Newest       *schema.Snapshot // nil if there is no sound one
}

// StreamEnds are where the log begins and ends, and how many mutations are not
// judged.
type StreamEnds struct{ First, Last, Behind uint64 }

// DocumentCounts are the counts of all collections.
type DocumentCounts struct {
	Collections int
	projections.Counts
}

// say returns the listener of the processor that has started, if any.
func (m *Monitor) say() observe.EventListener {
	if all := m.tell.Load(); all != nil {
		return *all
	}
	return func(observe.Event) {}
}

// Listener keeps what health and metrics need.
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
			h.logSince, h.logErr, h.leaseErr = time.Time{}, nil, nil // of the previous role
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
			h.leaseErr = e.Err
		case observe.LeaseReachable:
			h.leaseErr = nil
		case observe.AppendsRejected:
			m.refusing.Store(true)
		case observe.MutationsUnreachable:
			h.mutations = e.Since
		case observe.MutationsReachable:
			h.mutations = time.Time{}
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
		case observe.ClockDoubted:
			h.counts.clockDoubts++
		case observe.SnapshotUnusable:
			h.counts.snapshotsUseless++
		case observe.ProjectionRemade:
			h.counts.projectionsRemade++
		case observe.Failed:
			h.failed = e.Err
		}
	}
}

// Starting says that a processor is on its way that tells events, over these
// connections, by name; nil ones are left out.
func (m *Monitor) Starting(events observe.EventListener, over map[string]*nats.Conn) {
	m.tell.Store(&events)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.connections = make(map[string]*connection)
	for name, nc := range over {
		if nc != nil {
			m.state.connections[name] = &connection{nc: nc}
		}
	}
	m.state.caughtUp, m.state.ended, m.state.failed, m.state.progress = false, "", nil, observe.CatchingUp{}
}

// Serving says that the processor serves.
func (m *Monitor) Serving(from Source) {
	m.using.Lock()
	defer m.using.Unlock()
	m.running = from
}

// Stopping says that it will not much longer.
func (m *Monitor) Stopping() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.ended = "stopping"
}

// Stopped says that it does not any more. Nobody asks it from then on.
func (m *Monitor) Stopped() {
	m.using.Lock()
	defer m.using.Unlock()
	m.running = nil
}

// use returns the source, nil if none serves. It does not end until done is
// called.
func (m *Monitor) use() (from Source, done func()) {
	m.using.RLock()
	return m.running, m.using.RUnlock
}

// Watch tells when connections are lost and back, until ctx ends.
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
			default: // one that nobody has taken yet says enough
			}
			if before != nil {
				before(nc, err)
			}
		})
		defer c.nc.SetDisconnectErrHandler(before)
		watching.Go(func() { m.watchOne(ctx, name, c.nc, losses) })
	}
	watching.Wait()
}

// looksAgain is how often the state of a connection is looked at that said
// nothing: a change may come while nobody could take it.
const looksAgain = 5 * time.Second

// errGivenUp is why a connection is lost for which nats.go has no reason.
var errGivenUp = errors.New("given up, to look for another server")

// watchOne is watch for one of them; losses says why it was lost.
func (m *Monitor) watchOne(ctx context.Context, name string, nc *nats.Conn, losses <-chan error) {
	changes := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(changes)
	ticks := time.NewTicker(looksAgain)
	defer ticks.Stop()
	var lost time.Time
	var err error
	told := false // that it is lost, and it may be back already
	for {
		connected := nc.IsConnected()
		if lost.IsZero() && (told || !connected) {
			lost = time.Now()
			m.say()(observe.ConnectionLost{Connection: name, Err: cmp.Or(err, nc.LastError(), errGivenUp)})
		}
		if !lost.IsZero() && connected {
			m.say()(observe.ConnectionBack{Connection: name, Server: nc.ConnectedUrlRedacted(), After: time.Since(lost)})
			lost = time.Time{}
		}
		err, told = nil, false
		select {
		case err = <-losses:
			told = true
		case <-changes:
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// HungAfter is how long the writer's loop may take for one round. What it waits
// for gives up before that.
const HungAfter = time.Minute

// Live returns why the process should be ended and started again, nil if it
// should not.
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
	if quiet := time.Since(time.Unix(0, beaten)); role == observe.Writer && beaten != 0 && quiet > HungAfter {
		return fmt.Errorf("the writer has done nothing for %s", quiet.Round(time.Second))
	}
	return nil
}

// Ready returns why requests are not served as they should be, in lines for an
// operator; none if they are.
func (m *Monitor) Ready() (reasons []string) {
	say := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	if err := m.Live(); err != nil {
		say("failed: %v", err)
	}
	m.mu.Lock()
	state := m.state
	state.connections = make(map[string]*connection, len(m.state.connections))
	for name, c := range m.state.connections {
		one := *c
		state.connections[name] = &one
	}
	m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(state.connections)) {
		if c := state.connections[name]; !c.nc.IsConnected() {
			say("NATS is away%s: the %s connection is %s%s", since(c.since), name, connectionState(c.nc), because(c.err))
		}
	}
	p, done := m.use()
	defer done()
	switch {
	case state.ended != "":
		say("%s", state.ended)
		return reasons
	case p == nil && !state.caughtUp && state.progress.End > 0:
		say("not caught up: %d of %d events are folded, %d %%", state.progress.Seq, state.progress.End, 100*state.progress.Seq/state.progress.End)
		return reasons
	case p == nil:
		say("starting%s", since(state.began))
		return reasons
	}
	if !state.logSince.IsZero() {
		say("the log is out of reach%s%s", since(state.logSince), because(state.logErr))
	}
	if m.refusing.Load() {
		say("the log refuses what it is given")
	}
	if clock := p.Sample().Clock; clock.Suspect && state.role == observe.Writer {
		say("the clock is not believed: %s", clock.Reason)
	}
	return reasons
}

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

// Status says how the database is; an error if it is not served yet.
func (m *Monitor) Status(ctx context.Context) (schema.Status, error) {
	p, done := m.use()
	defer done()
	if p == nil {
		return schema.Status{}, schema.ErrUnavailable.With("lapse is starting")
	}
	return p.Status(ctx)
}
