package processor

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/nats-io/nuid"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/monitor"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/service"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// Durability says what an acknowledged write survives.
type Durability string

const (
	Fsync Durability = "fsync" // a power cut
	OS    Durability = "os"    // the end of the process
)

// Options of a Processor. The zero value is good.
type Options struct {
	// Database is what is served; "main" if empty.
	Database schema.DatabaseName
	// Dir is where the projection lives; "data/projection" if empty. It may be
	// removed at any time while no processor runs.
	Dir string
	// Projection are the options of the store there.
	Projection projections.Options
	// Durability has to match the NATS server's sync_interval; Fsync if empty.
	// With Fsync, events are appended in atomic batches as soon as there are
	// enough of them to share a sync.
	Durability Durability
	// AtomicBatch is the size of the largest atomic batch that the NATS server
	// takes; 1000 if 0, which is NATS's own default.
	AtomicBatch int
	// Lease is how long a writer that says nothing is waited for before another
	// processor takes its place, in whole seconds. 0 says that there is no other,
	// and this one writes.
	Lease time.Duration
	// Node names this processor over restarts. When it starts again it need not
	// wait for the lease that it had. Any if empty.
	Node string
	// Replicas is how many copies NATS keeps of the streams that are made, 1 if 0.
	// Those that are there have to have as many, or any if 0.
	Replicas int
	// Queue is how many mutations may wait for the writer, and how many reads
	// for a worker, before requests are refused with 429; 8192 if 0.
	Queue int
	// Workers is how many reads are answered at a time; 16 if 0.
	Workers int
	// Query are the limits of each query.
	Query query.Limits
	// QueryWorkers is how many queries run at a time; if 0, half as many as Go
	// has processors, and 2 at least: one that takes long must not keep all
	// others waiting.
	QueryWorkers int
	// QueryQueue is how many queries may wait for a worker before they are
	// refused with 429; 64 if 0.
	QueryQueue int
	// Retain is how long what happened stays in the log; for ever if 0. Trimmed
	// is only what is below a snapshot that was verified.
	Retain time.Duration
	// SnapshotEvery is how often a snapshot is made, if anything has happened.
	// If 0, a quarter of Retain but an hour at most, and never if that is 0,
	// too.
	SnapshotEvery time.Duration
	// LatenessObjective is how late expiries may be, 99 of a hundred; a second if
	// 0. Status tells how well it is kept.
	LatenessObjective time.Duration
	// Clock is the machine's clock; Go's if nil, for which the time that the
	// machine sleeps may not have passed.
	Clock clock.Clock
	// MaxClockStep is how far that clock may be from what it should say; a
	// minute if 0. Beyond that nothing expires and writes are refused.
	MaxClockStep time.Duration
	// MaxDowntime is how long after the end of the log the clock may be at the
	// start; 30 days if 0.
	MaxDowntime time.Duration
	// AcceptClock takes the clock for right at the start, wherever the log ends.
	AcceptClock bool
	// AcceptLostEnd lets the log end before what is known of it, by what was
	// acknowledged, the projection or a snapshot. The log then says so.
	AcceptLostEnd bool
	// SameClock says that the NATS server has the same clock, so that its time
	// proves nothing.
	SameClock bool
	// Boot names the moment from which Clock counts, such as a start of the
	// machine; "" if every process counts from another one. ClockFile is where to
	// remember what the clock said then, so that a restart cannot make a wrong
	// clock right; nowhere if empty. No other process may use the file.
	Boot, ClockFile string
	// Logger gets what an operator should know; nowhere if nil.
	Logger *slog.Logger
	// Events is told the same, and more, as it happens; nobody if nil.
	Events observe.EventListener
	// Monitor says how the processor is, also before it has started; if nil, one
	// that nobody else has.
	Monitor *monitor.Monitor
	// Progress is called while the log is folded at the start, with the
	// sequences done and in all; not if nil.
	Progress func(done, total uint64)
	// Version is what status reports, a semantic version; 0.0.0 if empty.
	Version string
}

// EnsureDefaults returns o with its zero values filled in.
func (o Options) EnsureDefaults() Options {
	if o.Database == "" {
		o.Database = schema.DefaultDatabase
	}
	if o.Dir == "" {
		o.Dir = "data/projection"
	}
	if o.Durability == "" {
		o.Durability = Fsync
	}
	if o.AtomicBatch == 0 {
		o.AtomicBatch = eventlog.MaxAtomic
	}
	if o.Node == "" {
		o.Node = nuid.Next()
	}
	if o.Queue == 0 {
		o.Queue = 8192
	}
	if o.Workers == 0 {
		o.Workers = 16
	}
	o.Projection = o.Projection.EnsureDefaults()
	o.Query = o.Query.EnsureDefaults()
	if o.QueryWorkers == 0 {
		o.QueryWorkers = max(2, runtime.GOMAXPROCS(0)/2)
	}
	if o.QueryQueue == 0 {
		o.QueryQueue = 64
	}
	if o.SnapshotEvery == 0 && o.Retain > 0 {
		o.SnapshotEvery = max(min(o.Retain/4, time.Hour), time.Second)
	}
	if o.LatenessObjective == 0 {
		o.LatenessObjective = time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.GoClock()
	}
	if o.MaxClockStep == 0 {
		o.MaxClockStep = time.Minute
	}
	if o.MaxDowntime == 0 {
		o.MaxDowntime = 30 * 24 * time.Hour
	}
	if o.Version == "" {
		o.Version = schema.NoVersionName
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Events = o.Events.EnsureDefaults()
	return o
}

// watched returns o, which has its defaults, with all who want to know among its
// Events.
func (o Options) watched() Options {
	if o.Monitor == nil {
		o.Monitor = monitor.NewMonitor(o.Database)
	}
	o.Events = observe.TeeEventListener(o.Monitor.Listener(), observe.TeeEventListener(observe.LoggingEventListener(o.Logger), o.Events))
	return o
}

// What each room takes of the options.

func (o Options) forEventlog() eventlog.Config {
	return eventlog.Config{Database: o.Database, Replicas: o.Replicas, Events: o.Events}
}

func (o Options) ForClock() clock.Config {
	return clock.Config{Clock: o.Clock, FS: o.Projection.FS, File: o.ClockFile, Boot: o.Boot, MaxStep: o.MaxClockStep, MaxDowntime: o.MaxDowntime, Events: o.Events}
}

func (o Options) forSnapshots() snapshot.Config {
	return snapshot.Config{Config: o.forEventlog(), Dir: o.Dir, Projection: o.Projection, Retain: o.Retain, SnapshotEvery: o.SnapshotEvery,
		Clock: o.Clock, Doing: o.Monitor.At, AcceptLostEnd: o.AcceptLostEnd, Alone: o.Lease == 0}
}

func (o Options) forService() service.Config {
	return service.Config{Database: o.Database, Version: o.Version, Node: o.Node, Events: o.Events, Meter: o.Monitor,
		Queue: o.Queue, Workers: o.Workers, Query: o.Query, QueryWorkers: o.QueryWorkers, QueryQueue: o.QueryQueue}
}

func (o Options) forLease(leave func()) lease.Config {
	return lease.Config{Database: o.Database, TTL: o.Lease, Replicas: o.Replicas, Node: o.Node, Leave: leave,
		Elapsed: func() time.Duration { _, elapsed := o.Clock(); return elapsed }}
}

func (o Options) forWriter(payload int64) writer.Config {
	return writer.Config{Events: o.Events, Meter: o.Monitor, Synced: o.Durability == Fsync, AtomicBatch: o.AtomicBatch, Lease: o.Lease,
		MaxDowntime: o.MaxDowntime, QueryTime: o.Query.Time, Largest: int(payload) - schema.HeaderRoom - schema.SystemRoom, Queue: o.Queue, Objective: o.LatenessObjective}
}
