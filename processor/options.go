package processor

import (
	"cmp"
	"crypto/rand"
	"iter"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/monitor"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/peers"
	"github.com/lapsedb/lapse/processor/service"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// Durability is the kind of failure that an acknowledged write survives.
type Durability string

const (
	Fsync Durability = "fsync" // a power cut
	OS    Durability = "os"    // the end of the process
)

// Options of a Processor. The zero value has good defaults.
type Options struct {
	// Database is the name of the database; "main" if empty.
	Database schema.DatabaseName
	// Dir is the directory of the projection; "data/projection" if empty. It may be
	// removed while no processor runs.
	Dir string
	// Projection is the options of the store in Dir.
	Projection projections.Options
	// It has to match the NATS server's sync_interval; Fsync if empty. With Fsync, events are
	// appended in atomic batches once there are enough to share a sync.
	Durability Durability `flag:"acknowledge a write once it survives a power cut (fsync) or the end of the process (os)"`
	// AtomicBatch is the NATS server's limit of messages in an atomic batch; 1000, its
	// default, if 0.
	AtomicBatch int
	// In whole seconds. 0: there are no standbys, and this processor writes.
	Lease time.Duration `flag:"lease TTL: a standby takes over when the writer has not renewed it for [DURATION]"`
	// Node names this processor over restarts, so that it need not wait for the lease
	// that it held before; random if empty.
	Node string

	// NodeDir identifies the directory that only this process uses: a process with the same
	// Node and another NodeDir runs on a copy, and may be alive. "" if unknown.
	NodeDir string
	// ReadOnly: this processor is a standby for ever. It needs a Lease.
	ReadOnly bool
	// ClientsApart: clients are users of another account than that of the streams, so that
	// they may not move the database.
	ClientsApart bool
	// Process is this one among others; nil if it serves this database only.
	Process *peers.Process
	// Existing streams must have as many, or any number if 0.
	Replicas int `flag:"replicas of the streams (default that of existing streams, or 1)"`
	// Storage is where the streams are: file if left out.
	Storage jetstream.StorageType
	// Queue is the number of mutations that may wait for the writer, and of reads that may
	// wait for a worker, before requests are refused with 429; 8192 if 0.
	Queue int
	// Workers is the number of concurrent reads; 16 if 0.
	Workers int
	// Query are the limits of each query.
	Query query.Limits
	// QueryWorkers is the number of concurrent queries; if 0, half of GOMAXPROCS but at
	// least 2, so that a slow query cannot delay all others.
	QueryWorkers int
	// QueryQueue is the number of queries that may wait for a worker before they are
	// refused with 429; 64 if 0.
	QueryQueue int
	// For ever if 0. Only events below a verified snapshot are trimmed.
	Retain            time.Duration `flag:"keep events in the log for [DURATION], or forever"`
	SnapshotEvery     time.Duration `flag:"snapshot the projection every [DURATION] if it changed (default a quarter of --retain, at most 1h; none with forever)"`
	LatenessObjective time.Duration `flag:"objective: 99 of 100 expiries at most [DURATION] late; status reports whether it is met"`
	// Timekeeper is a clock that its owner moves by Advance, see clock.NewManual; nil for
	// Clock.
	Timekeeper *clock.Timekeeper
	// Load has the events of an exported log, with which an empty one begins; the Timekeeper
	// moves to the last of them. None if nil.
	Load iter.Seq2[schema.Line, error]
	// Clock is the machine's clock; Go's if nil, which may not count the time that the
	// machine sleeps.
	Clock clock.Clock
	// A minute and 30 days if 0.
	MaxClockStep time.Duration `flag:"accept clock steps up to [DURATION]; after a larger one refuse writes and expire nothing"`
	MaxDowntime  time.Duration `flag:"at the first start after boot, accept a clock up to [DURATION] ahead of the end of the log"`
	AcceptClock  bool          `flag:"at startup, accept the clock as it is"`
	// The log then records the loss.
	AcceptLostEnd bool `flag:"start even if a stream has lost its tail: accept that acknowledged writes are lost"`
	// SameClock: the NATS server runs on the same clock, so its time proves nothing.
	SameClock bool
	// Boot identifies the start of the elapsed time of Clock, such as a boot of the
	// machine; "" if it differs per process. ClockFile remembers the clock over restarts,
	// so that a restart cannot make a wrong clock trusted; none if empty. No other process
	// may use the file.
	Boot, ClockFile string
	// HeldBytes is the most bytes of requests without a reply, in all databases of the
	// process; 128 MiB if 0.
	HeldBytes int64
	// MemoryLimit is what the process should stay below, for status and metrics; 0 if
	// nobody says.
	MemoryLimit int64
	// Logger receives log lines for an operator; none if nil.
	Logger *slog.Logger
	// Events receives every event as it happens; none if nil.
	Events observe.EventListener
	// Monitor reports health and metrics, from before the start; a new one if nil.
	Monitor *monitor.Monitor
	// Limits returns what limits the streams' space on the machine of the NATS server; not
	// known if nil.
	Limits func() []monitor.Limit
	// Progress is called during the catch-up at the start, with the sequence folded and
	// that of the end; not if nil.
	Progress func(done, total uint64)
	// Version is the semantic version in status; 0.0.0 if empty.
	Version string

	// Of all databases in the process, see Shared.
	held       *atomic.Int64 // bytes of requests
	conditions *query.Conditions
}

// Minimum sizes of each of n databases' share.
const (
	leastMemTable  = 4 << 20
	leastDocuments = 1 << 20
)

// Shared returns o, which has its defaults, for each of n databases that one process
// serves: they share the block cache, compiled conditions and the limit of request bytes, and
// divide memtables and recent documents. Call release after the last of them has stopped.
func (o Options) Shared(n int) (_ Options, release func()) {
	cache := pebble.NewCache(o.Projection.CacheBytes)
	o.Projection.Cache = cache
	if n == 1 {
		return o, cache.Unref
	}
	o.held, o.conditions = new(atomic.Int64), query.NewConditions()
	o.Projection.MemTableBytes = max(o.Projection.MemTableBytes/uint64(n), leastMemTable)
	o.Projection.DocumentBytes = max(o.Projection.DocumentBytes/int64(n), leastDocuments)
	return o, cache.Unref
}

// InMemory returns o for streams and a projection in memory, as small as many databases of
// one process are. Nothing survives the process, so nothing is synced.
func (o Options) InMemory() Options {
	o.Durability, o.Storage = OS, jetstream.MemoryStorage
	o.Projection.FS, o.Projection.MemTableBytes = vfs.NewMem(), 1<<20
	return o
}

// EnsureDefaults returns o with its zero values filled in.
func (o Options) EnsureDefaults() Options {
	o.Database = cmp.Or(o.Database, schema.DefaultDatabase)
	o.Dir = cmp.Or(o.Dir, "data/projection")
	o.Durability = cmp.Or(o.Durability, Fsync)
	o.AtomicBatch = cmp.Or(o.AtomicBatch, eventlog.MaxAtomic)
	o.Node = cmp.Or(o.Node, rand.Text())
	o.Queue = cmp.Or(o.Queue, 8192)
	o.Workers = cmp.Or(o.Workers, 16)
	o.HeldBytes = cmp.Or(o.HeldBytes, service.MaxHeldBytes)
	if o.held == nil {
		o.held = new(atomic.Int64)
	}
	o.Projection = o.Projection.EnsureDefaults()
	o.Query = o.Query.EnsureDefaults()
	o.QueryWorkers = cmp.Or(o.QueryWorkers, max(2, runtime.GOMAXPROCS(0)/2))
	o.QueryQueue = cmp.Or(o.QueryQueue, 64)
	if o.SnapshotEvery == 0 && o.Retain > 0 {
		o.SnapshotEvery = max(min(o.Retain/4, time.Hour), time.Second)
	}
	o.LatenessObjective = cmp.Or(o.LatenessObjective, time.Second)
	if o.Clock == nil {
		o.Clock = clock.GoClock()
	}
	o.MaxClockStep = cmp.Or(o.MaxClockStep, time.Minute)
	o.MaxDowntime = cmp.Or(o.MaxDowntime, 30*24*time.Hour)
	o.Version = cmp.Or(o.Version, schema.NoVersionName)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Events = o.Events.EnsureDefaults()
	return o
}

// watched returns o, which has its defaults, with the monitor and the logger among its
// Events.
func (o Options) watched() Options {
	if o.Monitor == nil {
		o.Monitor = monitor.NewMonitor(o.Database)
	}
	o.Events = observe.TeeEventListener(o.Monitor.Listener(), observe.TeeEventListener(observe.LoggingEventListener(o.Logger), o.Events))
	return o
}

// The options of each room.

func (o Options) forEventlog() eventlog.Config {
	return eventlog.Config{Database: o.Database, Replicas: o.Replicas, Storage: o.Storage, Events: o.Events}
}

// ForClock returns the options of package clock.
func (o Options) ForClock() clock.Config {
	return clock.Config{Clock: o.Clock, FS: o.Projection.FS, File: o.ClockFile, Boot: o.Boot, MaxStep: o.MaxClockStep, MaxDowntime: o.MaxDowntime, Events: o.Events}
}

func (o Options) forSnapshots() snapshot.Config {
	return snapshot.Config{Config: o.forEventlog(), Dir: o.Dir, Projection: o.Projection, Retain: o.Retain, SnapshotEvery: o.SnapshotEvery,
		Clock: o.Clock, Doing: o.Monitor.At, AcceptLostEnd: o.AcceptLostEnd, Alone: o.Lease == 0}
}

func (p *Processor) forService() service.Config {
	o := p.options
	return service.Config{Database: o.Database, Version: o.Version, Events: o.Events, Meter: o.Monitor, Storage: o.Monitor.Storage, Memory: p.Memory, Process: o.Process,
		ClientsApart: o.ClientsApart, Queue: o.Queue, Workers: o.Workers, AllHeld: o.held, HeldBytes: o.HeldBytes, Query: o.Query, QueryWorkers: o.QueryWorkers, QueryQueue: o.QueryQueue}
}

func (o Options) forLease(reconnect func()) lease.Config {
	return lease.Config{Database: o.Database, TTL: o.Lease, Replicas: o.Replicas, Node: o.Node, Dir: o.NodeDir, Leave: reconnect,
		Elapsed: func() time.Duration { _, elapsed := o.Clock(); return elapsed }}
}

func (o Options) forWriter(payload int64, l *lease.Lease) writer.Config {
	var held func() bool
	if l != nil {
		held = l.Held
	}
	return writer.Config{Held: held, Events: o.Events, Meter: o.Monitor, Synced: o.Durability == Fsync, AtomicBatch: o.AtomicBatch, Lease: o.Lease,
		MaxDowntime: o.MaxDowntime, QueryTime: o.Query.Time, Largest: int(payload) - schema.HeaderRoom - schema.SystemRoom, Queue: o.Queue, Objective: o.LatenessObjective}
}
