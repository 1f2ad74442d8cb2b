package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// serve in three steps. addFlags binds flags to host.Options. complete reads the
// environment, then checks what flags mean together; it starts nothing, so config calls it
// as well. serve reads the console's token and the operator's key, opens the log, and runs
// host.Run until a signal.
//
// host reports what happens through events, and this file alone knows how that looks: log
// lines, the progress of a fold, the ready line, the notifications of systemd. Package host
// has no flags and prints nothing.

// serveFlags are the flags of serve, which config has, too. Most are fields of
// host.Options; the others need reading or checking first.
type serveFlags struct {
	host.Options
	database    string
	external    externalFlags
	listenGiven bool
	operatorKey string // a file with the seed
	weight      int
	noSnapshots bool // --snapshot-every 0
	console     consoleFlags
	cosmos      cosmosFlags
	log         logFlags
	environment fromEnvironment
}

func newServeCommand(a *app) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve databases, with an embedded or external NATS server",
		Long: `serve starts a NATS server with JetStream and serves databases on it. SIGTERM or Ctrl-C
stops it cleanly, within 25 s at most; a second one kills it at once. A database that
fails does not end the others: serve says so in one line, starts it again later, and
exits with 1 if it is not served at the end.

With --nats-url or --context it uses an external NATS server, which stores the streams;
the store directory is then only a cache. Any number of processes may serve a database:
one writes, the others answer reads and take over when it stops.

Every flag may come from the environment: LAPSE_STORE_DIR is --store-dir. Flags win, and
lapse config shows what is in force.`,
		Example: `  lapse serve
  lapse serve --database tenant-a,tenant-b
  lapse serve --nats-url nats://n1,nats://n2,nats://n3 --replicas 3
  lapse serve --nats-url tls://n1 --tls-ca ca.pem --nkey log=processor.nk \
    --nkey bulk=bulk.nk --nkey service=service.nk`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := f.complete(cmd.Flags(), a.environment)
			if err == nil {
				err = a.serve(cmd.Context(), f, cmd.Flags())
			}
			return f.environment.blame(err)
		},
	}
	f.addFlags(cmd.Flags())
	return cmd
}

func (f *serveFlags) addFlags(to *pflag.FlagSet) {
	defaults := processor.Options{}.EnsureDefaults()
	text, own := flagText[host.Options], flagText[processor.Options] // own: of each database
	addGroup(to, "Server", func(flags *pflag.FlagSet) {
		flags.StringVar(&f.database, "database", "main", "`NAME`[,NAME…] of the databases, or * for all that the NATS server has at the start")
		flags.StringVar(&f.StoreDir, "store-dir", "data", text("StoreDir"))
		flags.StringVar(&f.Listen, "listen", "127.0.0.1:4222", text("Listen"))
		flags.Var(&userFlag{&f.Users}, "user", text("Users"))
		flags.BoolVar(&f.NoTLS, "no-tls", false, text("NoTLS"))
		flags.BoolVar(&f.NoAuth, "no-auth", false, text("NoAuth"))
		flags.StringVar(&f.NATSConfig, "nats-config", "", text("NATSConfig"))
		flags.StringVar(&f.OperatorNKey, "operator-nkey", "", text("OperatorNKey"))
		flags.StringVar(&f.operatorKey, "operator-nkey-out", "", "as --operator-nkey, of the user whose seed is in `FILE`: made at the first start, with mode 0600")
		choiceVar(flags, &f.Processor.Durability, "durability", processor.Fsync, own("Durability"), processor.Fsync, processor.OS)
		flags.Var(sizeFlag[int64]{to: &f.Processor.Projection.CacheBytes, least: 1 << 20, zero: "auto"}, "cache-bytes",
			flagText[projections.Options]("CacheBytes"))
		flags.BoolVar(&f.Processor.AcceptLostEnd, "accept-lost-end", false, own("AcceptLostEnd"))
	})
	addGroup(to, "External NATS server", func(flags *pflag.FlagSet) {
		f.external.addFlags(flags)
		f.external.serves = true
		flags.Lookup("tls-cert").Usage = "present the certificate in `FILE`: without an external NATS server to clients, at --listen; SIGHUP reads it again then"
		addReplicasFlag(flags, &f.Processor.Replicas, own("Replicas"))
		f.Processor.Lease = 5 * time.Second
		flags.Var(&durationFlag{to: &f.Processor.Lease, least: 2 * time.Second, most: time.Hour, seconds: true}, "lease", own("Lease"))
		flags.IntVar(&f.Copies, "copies", 0, text("Copies"))
		choiceVar(flags, &f.weight, "weight", 1, "0: only read, and write no database", 0, 1)
	})
	addGroup(to, "Retention and snapshots", func(flags *pflag.FlagSet) {
		flags.Var(&durationFlag{to: &f.Processor.Retain, least: time.Second, zero: "forever"}, "retain", own("Retain"))
		flags.Var(&durationFlag{to: &f.Processor.SnapshotEvery, least: time.Second, zero: "0"}, "snapshot-every", own("SnapshotEvery"))
	})
	addGroup(to, "Clock", func(flags *pflag.FlagSet) { addClockFlags(flags, &f.Processor) })
	addGroup(to, "Queries", func(flags *pflag.FlagSet) { addQueryFlags(flags, &f.Processor) })
	addGroup(to, "Web console, with the embedded NATS server", func(flags *pflag.FlagSet) { f.console.add(flags, ", or off") })
	addGroup(to, "Cosmos DB's SDKs, with the embedded NATS server", func(flags *pflag.FlagSet) { f.cosmos.addURL(flags); f.cosmos.add(flags) })
	addGroup(to, "Monitoring and logging", func(flags *pflag.FlagSet) {
		flags.StringVar(&f.Metrics, "metrics", "", text("Metrics"))
		flags.StringVar(&f.HealthSocket, "health-socket", "", text("HealthSocket"))
		flags.BoolVar(&f.Profiles, "debug", false, text("Profiles"))
		durationVar(flags, &f.Processor.LatenessObjective, "lateness-objective", defaults.LatenessObjective, time.Millisecond, own("LatenessObjective"))
		f.log.add(flags)
	})
}

// addQueryFlags adds the query limits.
func addQueryFlags(flags *pflag.FlagSet, p *processor.Options) {
	o, text := processor.Options{}.EnsureDefaults(), flagText[query.Limits]
	durationVar(flags, &p.Query.Time, "query-time", o.Query.Time, 1, text("Time"))
	flags.IntVar(&p.Query.Scanned, "query-scanned", o.Query.Scanned, text("Scanned"))
	sizeVar(flags, &p.Query.Bytes, "query-bytes", o.Query.Bytes, 1, text("Bytes"))
}

// addClockFlags adds the limits of trust in the system clock.
func addClockFlags(flags *pflag.FlagSet, p *processor.Options) {
	o, own := processor.Options{}.EnsureDefaults(), flagText[processor.Options]
	durationVar(flags, &p.MaxClockStep, "max-clock-step", o.MaxClockStep, time.Second, own("MaxClockStep"))
	durationVar(flags, &p.MaxDowntime, "max-downtime", o.MaxDowntime, time.Second, own("MaxDowntime"))
	flags.BoolVar(&p.AcceptClock, "accept-clock", false, own("AcceptClock"))
}

// complete adds the flags that are in the environment, completes the options, and returns
// an error for values out of range or flags that do not go together. Errors are usage
// errors, exit 2. The environment comes first: the rest cannot tell a flag from a variable,
// and need not.
func (f *serveFlags) complete(flags *pflag.FlagSet, environment []string) (err error) {
	if err := f.environment.read(flags, environment); err != nil {
		return err
	}
	f.listenGiven = flags.Changed("listen")
	f.noSnapshots = flags.Changed("snapshot-every") && f.Processor.SnapshotEvery == 0
	f.console.given = flags.Changed("console")
	if f.Databases, err = parseDatabases(f.database); err != nil {
		return err
	}
	p := &f.Processor
	if flags.Changed("copies") && f.Copies < 1 {
		return usageErrorf("--copies %d: use at least 1, or leave it out", f.Copies)
	}
	p.ReadOnly = f.weight == 0
	if p.Query.Scanned < 1 {
		return usageErrorf("--query-scanned: use at least 1")
	}
	if f.noSnapshots && p.Retain > 0 {
		return usageErrorf("--snapshot-every 0 with --retain: lapse trims the log below a snapshot only, leave --snapshot-every out for a quarter of --retain")
	}
	f.External = f.external.external()
	switch {
	case f.operatorKey != "" && f.OperatorNKey != "":
		return usageErrorf("--operator-nkey and --operator-nkey-out given: use one of them")
	case f.operatorKey != "" && f.External != nil:
		return usageErrorf("--operator-nkey-out is for the embedded NATS server: add the user to the one of --nats-url or --context itself")
	}
	// The same two flags name the certificate for clients, or that of lapse as a client of
	// another server.
	if f.External == nil {
		f.TLSCert, f.TLSKey = f.external.cert, f.external.key
	} else {
		if !f.listenGiven {
			f.Listen = ""
		}
		if !f.console.given {
			f.console.address = "off"
		}
	}
	if f.console.address != "off" {
		f.Console.Address = f.console.address
	}
	if f.Cosmos, err = f.cosmos.options(false); err != nil {
		return err
	}
	if err := f.external.check(); err != nil {
		return err
	}
	if f.Metrics != "" {
		if err := checkAddress("--metrics", f.Metrics); err != nil {
			return err
		}
	}
	// OwnProcess: nothing else runs in this process, so its memory, threads and signals are
	// lapse's to set.
	p.Version, f.OwnProcess = semver(), true
	return f.Check()
}

// allDatabases stands for every database of a NATS server.
const allDatabases = "*"

// parseDatabases reads NAME[,NAME…]; it returns nil for allDatabases, of which package host
// asks the NATS server.
func parseDatabases(text string) (names []schema.DatabaseName, err error) {
	if text == allDatabases {
		return nil, nil
	}
	for element := range strings.SplitSeq(text, ",") {
		name, err := schema.ParseDatabaseName(element)
		switch {
		case element == allDatabases:
			return nil, usageErrorf("--database %s: use * alone, it stands for all databases", text)
		case element == "" && text != "":
			return nil, usageErrorf("--database %s: a name is missing: use NAME,NAME", text)
		case err != nil:
			return nil, usageErrorf("--database: %v", err)
		case slices.Contains(names, name):
			return nil, usageErrorf("--database %s: %s is there twice", text, name)
		}
		names = append(names, name)
	}
	return names, nil
}

// addReplicasFlag adds --replicas, with the numbers that NATS can provide.
func addReplicasFlag(flags *pflag.FlagSet, to *int, usage string) {
	choiceVar(flags, to, "replicas", 0, usage, 1, 3)
}

// serve runs the databases until ctx ends. Errors before the log is open are plain lines,
// as those of other commands. log.close comes before the last line, so that lines which the
// limit held back do not follow it.
func (a *app) serve(ctx context.Context, f serveFlags, flags *pflag.FlagSet) (err error) {
	if f.Console, err = f.console.options(); err != nil {
		return err
	}
	if f.operatorKey != "" {
		if f.OperatorNKey, err = operatorKey(f.operatorKey); err != nil {
			return err
		}
	}
	log := a.openLog(f.log, f.configuration(flags)...)
	f.Processor.Logger = log.Logger
	if unknown := f.environment.unknown; unknown != nil {
		log.Warn("no flag has these environment variables: correct their names or remove them", "names", strings.Join(unknown, ","))
	}
	// From here on SIGHUP is either a reload (in host) or an end; it never kills.
	defer a.hangUp(ctx, f)()
	manager := serviceManager{notify: notifySystemd, logger: log.Logger}
	defer manager.stops(ctx)()
	f.Events = a.hostEvents(&f, log, &manager)
	err = a.host(ctx, f.Options)
	log.close()
	if err == nil {
		a.report(slog.LevelInfo, "lapse has stopped", slog.Any("reason", context.Cause(ctx)), a.ran())
	}
	return err
}

// hangUp lets SIGHUP end serve as SIGTERM does where it has nothing to read again: the signal
// would kill a writer that hands nothing over. One that is ignored, as by nohup, stays so.
func (a *app) hangUp(ctx context.Context, f serveFlags) (stop func()) {
	if f.Reloadable() || f.Cosmos.CertFile != "" || signal.Ignored(syscall.SIGHUP) {
		return func() {}
	}
	hangup, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	context.AfterFunc(hangup, func() { a.end(context.Cause(hangup)) })
	return stop
}

// hostEvents returns a function that writes what happens to the log. host calls it from
// several goroutines. Doing is the activity that is named if serve hangs at its end;
// Failing ends the process with the error.
func (a *app) hostEvents(f *serveFlags, log *serverLog, manager *serviceManager) func(host.Event) {
	var bar *progress
	return func(e host.Event) {
		switch e := e.(type) {
		case host.Doing:
			a.does(e)
		case host.Opened:
			log.to.begin()
		case host.Folding:
			if bar == nil {
				bar = newProgress(a.stderr, "fold the log", int64(e.Total))
			}
			bar.Set(int64(e.Done))
		// Whether or not the start succeeded, the bar must go before the next line.
		case host.Started:
			if bar != nil {
				bar.Done()
			}
		case host.Ready:
			log.ready(readyLine(f, e), e.Process)
			manager.ready(e.Live)
		case host.NotServed:
			log.always.Error(sentence(e.Err))
		case host.ServedAgain:
			log.always.Info(fmt.Sprintf("database %s is served again", e.Database))
		case host.StoppedEarly:
			log.always.Info("stopped while starting")
		case host.Failing:
			a.end(e.Err)
		}
	}
}

// readyLine says what is served, where, in which roles, and how long the log is kept.
// Programs read the addresses from it; serverLog.ready writes the word ready before it.
//
//	database main at nats://127.0.0.1:4222, kept in data, the log for ever, console: http://…
func readyLine(f *serveFlags, ready host.Ready) string {
	var names []string
	var role observe.Role
	for _, db := range ready.Databases {
		switch {
		case db.Role == "":
			continue
		case f.External == nil || len(ready.Databases) == 1:
			names = append(names, string(db.Name))
		default:
			names = append(names, fmt.Sprintf("%s (%s)", db.Name, db.Role))
		}
		role = db.Role
	}
	databases, at, kept := "database", ready.URL, fmt.Sprintf("as the %s, projection in %s", role, f.StoreDir)
	if len(ready.Databases) > 1 {
		databases, kept = "databases", "projections in "+f.StoreDir
	}
	if f.External == nil {
		scheme, _, _ := strings.Cut(ready.URL, "://")
		at, kept = scheme+"://"+ready.Address, "kept in "+f.StoreDir
	}
	log := "the log for ever"
	if f.Processor.Retain > 0 {
		log = "the log for " + showDuration(f.Processor.Retain)
	}
	line := fmt.Sprintf("%s %s at %s, %s, %s", databases, strings.Join(names, ", "), at, kept, log)
	if ready.Console != "" {
		line += ", console: " + ready.Console
	}
	if ready.Cosmos != "" {
		line += ", for SDKs of Cosmos DB: " + ready.Cosmos
	}
	return line
}
