package main

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/projections/query"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	storeDir, listen, database, metrics string
	durability                          processor.Durability

	cacheBytes               int64
	retain, snapshotEvery    time.Duration // 0: forever, the default
	noSnapshots              bool          // --snapshot-every 0
	query                    query.Limits
	queryWorkers, queryQueue int

	debug                     bool
	latenessObjective         time.Duration
	maxClockStep, maxDowntime time.Duration
	acceptClock               bool
	acceptLostEnd             bool

	external    externalFlags
	listenGiven bool
	lease       time.Duration
	replicas    int

	console consoleFlags
	log     logFlags
}

func newServeCommand(a *app) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve databases, with an embedded or external NATS server",
		Long: `serve starts a NATS server with JetStream and serves a database on it. All files are
below the store directory. SIGTERM or Ctrl-C stops it cleanly, within 25 s at most; a
second one kills it at once.

With several databases, one that fails does not end the others: serve says so in one
line, starts it again later, and exits with 1 if it is not served at the end.

With --nats-url or --context it uses an external NATS server, which stores the streams;
the store directory is then only a cache. Any number of processes may serve a database:
the writer holds the lease, the standbys answer reads and take over when it stops.`,
		Example: `  lapse serve
  lapse serve --database tenant-a,tenant-b
  lapse serve --nats-url nats://n1,nats://n2,nats://n3 --replicas 3
  lapse serve --nats-url tls://n1 --tls-ca ca.pem --nkey log=processor.nk \
    --nkey bulk=bulk.nk --nkey service=service.nk`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.listenGiven = cmd.Flags().Changed("listen")
			f.noSnapshots = cmd.Flags().Changed("snapshot-every") && f.snapshotEvery == 0
			f.console.given = cmd.Flags().Changed("console")
			return a.serve(cmd.Context(), f)
		},
	}
	defaults := processor.Options{}.EnsureDefaults()
	addGroup(cmd.Flags(), "Server", func(flags *pflag.FlagSet) {
		flags.StringVar(&f.database, "database", "main", "`NAME`[,NAME…] of the databases, or * for all that the NATS server has at the start")
		flags.StringVar(&f.storeDir, "store-dir", "data", "store all files below `DIR`, which only one process at a time may use")
		flags.StringVar(&f.listen, "listen", "127.0.0.1:4222", "accept NATS clients at `HOST:PORT`, without credentials")
		choiceVar(flags, &f.durability, "durability", processor.Fsync, "acknowledge a write once it survives a power cut (fsync) or the end of the process (os)",
			processor.Fsync, processor.OS)
		sizeVar(flags, &f.cacheBytes, "cache-bytes", defaults.Projection.CacheBytes, "cache up to `SIZE` of the projection in memory")
		flags.BoolVar(&f.acceptLostEnd, "accept-lost-end", false, "start even if a stream has lost its tail: accept that acknowledged writes are lost")
	})
	addGroup(cmd.Flags(), "External NATS server", func(flags *pflag.FlagSet) {
		f.external.addFlags(flags)
		addReplicasFlag(flags, &f.replicas, "replicas of the streams (default that of existing streams, or 1)")
		f.lease = 5 * time.Second
		flags.Var(&durationFlag{to: &f.lease, least: 2 * time.Second, most: time.Hour, seconds: true}, "lease",
			"lease TTL: a standby takes over when the writer has not renewed it for `DURATION`")
	})
	addGroup(cmd.Flags(), "Retention and snapshots", func(flags *pflag.FlagSet) {
		flags.Var(&durationFlag{to: &f.retain, least: time.Second, zero: "forever"}, "retain", "keep events in the log for `DURATION`, or forever")
		flags.Var(&durationFlag{to: &f.snapshotEvery, least: time.Second, zero: "0"}, "snapshot-every", "snapshot the projection every `DURATION` if it changed (default a quarter of --retain, at most 1h; none with forever)")
	})
	addGroup(cmd.Flags(), "Clock", func(flags *pflag.FlagSet) { addClockFlags(flags, &f) })
	addGroup(cmd.Flags(), "Queries", func(flags *pflag.FlagSet) { addQueryFlags(flags, &f) })
	addGroup(cmd.Flags(), "Web console, with the embedded NATS server", func(flags *pflag.FlagSet) { f.console.add(flags, ", or off") })
	addGroup(cmd.Flags(), "Monitoring and logging", func(flags *pflag.FlagSet) {
		flags.StringVar(&f.metrics, "metrics", "", "serve /metrics (Prometheus), /healthz, /readyz and /status at `HOST:PORT` over HTTP")
		flags.BoolVar(&f.debug, "debug", false, "serve Go's profiles and execution traces at --metrics, below /debug/pprof/")
		durationVar(flags, &f.latenessObjective, "lateness-objective", defaults.LatenessObjective, time.Millisecond,
			"objective: 99 of 100 expiries at most `DURATION` late; status reports whether it is met")
		f.log.add(flags)
	})
	return cmd
}

// addQueryFlags adds the query limits.
func addQueryFlags(flags *pflag.FlagSet, f *serveFlags) {
	o := processor.Options{}.EnsureDefaults()
	flags.IntVar(&f.queryWorkers, "query-workers", o.QueryWorkers, "run at most `N` queries of one client at once, and one more of another")
	flags.Lookup("query-workers").DefValue = "half the cores, at least 2" // the same on every machine
	flags.IntVar(&f.queryQueue, "query-queue", o.QueryQueue, "queue at most `N` queries; refuse more with 429")
	durationVar(flags, &f.query.Time, "query-time", o.Query.Time, 1, "stop a query after `DURATION` in the queue and running, with 504")
	flags.IntVar(&f.query.Scanned, "query-scanned", o.Query.Scanned, "stop a query that scans more than `N` documents and index entries, with 413")
	sizeVar(flags, &f.query.Bytes, "query-bytes", o.Query.Bytes, "refuse a page above `SIZE` or max_payload of NATS, with 413")
	sizeVar(flags, &f.query.SortBytes, "query-sort-bytes", o.Query.SortBytes, "stop a query that needs more than `SIZE` of memory to sort, with 413")
	sizeVar(flags, &f.query.ExpressionBytes, "query-expression-bytes", o.Query.ExpressionBytes, "refuse a condition above `SIZE`, with 400")
	flags.IntVar(&f.query.Nesting, "query-nesting", o.Query.Nesting, "refuse a condition nested deeper than `N`, with 400")
	flags.Uint64Var(&f.query.Cost, "query-cost", o.Query.Cost, "stop a query whose condition costs more than `N` CEL units on one document, with 413")
}

// addClockFlags adds the limits of trust in the system clock.
func addClockFlags(flags *pflag.FlagSet, f *serveFlags) {
	o := processor.Options{}.EnsureDefaults()
	durationVar(flags, &f.maxClockStep, "max-clock-step", o.MaxClockStep, time.Second, "accept clock steps up to `DURATION`; after a larger one refuse writes and expire nothing")
	durationVar(flags, &f.maxDowntime, "max-downtime", o.MaxDowntime, time.Second, "at the first start after boot, accept a clock up to `DURATION` ahead of the end of the log")
	flags.BoolVar(&f.acceptClock, "accept-clock", false, "at startup, accept the clock as it is")
}

// check returns a usage error for values out of range or flags that do not go together.
func (f *serveFlags) check() error {
	for name, n := range map[string]int64{
		"query-workers": int64(f.queryWorkers), "query-queue": int64(f.queryQueue), "query-scanned": int64(f.query.Scanned),
		"query-nesting": int64(f.query.Nesting), "query-cost": int64(min(f.query.Cost, math.MaxInt64)),
	} {
		if n < 1 {
			return usageErrorf("--%s: use at least 1", name)
		}
	}
	if f.noSnapshots && f.retain > 0 {
		return usageErrorf("--snapshot-every 0 with --retain: lapse trims the log below a snapshot only, leave --snapshot-every out for a quarter of --retain")
	}
	if err := checkReplicas(f.replicas, f.external.given()); err != nil {
		return err
	}
	if f.external.given() {
		if f.console.given && f.console.address != "off" {
			return usageErrorf("--console %s: serve has a console with the embedded NATS server only: run `lapse console` beside it", f.console.address)
		}
		f.console.address = "off"
	}
	return f.external.check()
}

// addReplicasFlag adds --replicas, with the numbers that NATS can provide.
func addReplicasFlag(flags *pflag.FlagSet, to *int, usage string) {
	choiceVar(flags, to, "replicas", 0, usage, 1, 3)
}

// checkReplicas returns a usage error for more replicas than the NATS server has.
func checkReplicas(n int, external bool) error {
	if n > 1 && !external {
		return usageErrorf("--replicas %d: the embedded NATS server is one; give --nats-url of a cluster", n)
	}
	return nil
}

func (a *app) serve(ctx context.Context, f serveFlags) (err error) {
	databases, err := parseDatabases(f.database)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if f.metrics != "" {
		if err := checkAddress("--metrics", f.metrics); err != nil {
			return err
		}
	} else if f.debug {
		return usageErrorf("--debug without --metrics: give the address to serve profiles at")
	}
	lines, say := f.log.handler(a.stderr)
	defer lines.Close()
	logger := slog.New(lines)
	if f.log.format == "json" {
		a.complaints.Store(logger)
	}
	collectLess()
	monitors := new(monitors)
	if databases != nil {
		monitors.set(databases)
	}
	if f.metrics != "" {
		stop, err := serveWatchers(f.metrics, f.debug, monitors, logger)
		if err != nil {
			return err
		}
		defer stop()
	}
	console, err := f.console.open()
	if err != nil {
		return err
	}
	defer console.close()
	a.at("opening NATS")
	target, err := f.open(databases, logger)
	if ctx.Err() != nil {
		say(stoppedEarly)
		if err != nil {
			return nil // the signal most likely caused the error
		}
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			a.end(err)
		}
		a.at("closing NATS")
		target.close()
	}()
	if ctx.Err() != nil {
		return nil
	}
	if databases == nil {
		monitors.set(target.databases)
	}
	options := processor.Options{
		Durability: f.durability,
		Logger:     logger,
		Version:    semver(),

		Retain: f.retain, SnapshotEvery: f.snapshotEvery, LatenessObjective: f.latenessObjective,

		Lease: target.lease, Node: target.node, Replicas: f.replicas,

		Clock: machineClock(), SameClock: target.embedded, AtomicBatch: target.atomicBatch,
		Boot:         bootID(),
		MaxClockStep: f.maxClockStep, MaxDowntime: f.maxDowntime, AcceptClock: f.acceptClock,

		AcceptLostEnd: f.acceptLostEnd || target.embedded && f.durability == processor.OS,

		Query: f.query, QueryWorkers: f.queryWorkers, QueryQueue: f.queryQueue,
	}
	var bar *progress
	if len(target.databases) == 1 {
		options.Progress = func(done, total uint64) {
			if bar == nil {
				bar = newProgress(a.stderr, "fold the log", int64(total))
			}
			bar.Set(int64(done))
		}
	}
	options.Projection.CacheBytes = f.cacheBytes
	options = options.EnsureDefaults()
	if a.opened != nil {
		a.opened(target, &options)
	}
	options, release := options.Shared(len(target.databases))
	defer release()
	limitHeap(f.cacheBytes, 4*options.Projection.MemTableBytes*uint64(len(target.databases)))
	h := &host{all: target.hosted(options, monitors.all()), say: say, fail: a.complain, lost: make(chan error, 1), starts: make(chan struct{}, startsAtOnce)}
	a.does(h.doing)
	starting, end := target.whileOpen(ctx)
	h.start(starting)
	failure := end()
	if bar != nil {
		bar.Done()
	}
	if h.serving.Load() == 0 {
		switch {
		case ctx.Err() != nil:
			say(stoppedEarly)
			return nil
		case failure != nil:
			return failure
		case len(h.all) == 1:
			return target.cause(h.all[0].failure)
		}
		return errors.New("no database can be served: see the lines above")
	}
	defer onAcceptClock(func() { h.each((*processor.Processor).AcceptClock) })()
	defer widen(h.sum((*processor.Processor).Seq), h.sum((*processor.Processor).Requests))()
	target.warn(logger)
	serving, stop := context.WithCancel(context.Background())
	defer stop()
	kept := make(chan error, 1)
	go func() { kept <- h.keep(serving) }()
	ready := target.ready(h.all)
	if console.listener != nil {
		end, err := console.serveEach(target, logger)
		if err != nil {
			stop()
			return errors.Join(err, <-kept)
		}
		defer end()
		ready += ", console: " + console.url
	}
	say(ready)
	console.warn(logger)
	var lost error
	if failure == nil {
		select {
		case <-ctx.Done():
			stop()
			return <-kept
		case lost = <-h.lost:
			failure = target.cause(lost)
		case failure = <-target.failed:
		case failure = <-target.closed:
		}
	}
	a.end(failure)
	stop()
	err = <-kept
	if failure == lost && len(h.all) > 1 && h.serving.Load() == 0 {
		return err
	}
	if err != nil && err != lost {
		logger.Warn("the processor did not stop cleanly", "err", err)
	}
	return failure
}

// stoppedEarly is the last line of serve when a signal ends it before it is ready.
const stoppedEarly = "stopped while starting"
