// Package processor puts the rooms together to serve one database: it opens the log and
// the projection, folds, and takes the role of writer or standby.
//
// Start reading at Start (here) and roles (role.go), where the lease is taken. The flow of
// a request is service → writer → machine → eventlog → projections → service; each room's
// package comment says where to start in it. options.go passes each room its share of
// Options.
package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/peers"
	"github.com/lapsedb/lapse/processor/service"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/projections/query"
	"github.com/lapsedb/lapse/schema"
)

// Processor serves one database: it folds the log and answers reads. As the writer it
// also decides mutations and expires what is due.
type Processor struct {
	options   Options
	store     *projections.Store
	log       *eventlog.Log
	service   *service.Service
	writer    *writer.Writer
	retention *snapshot.Retention
	lease     *lease.Lease // nil without standbys
	moves     chan handOver

	reading, writing         context.Context
	stopReading, stopWriting context.CancelFunc
	running                  sync.WaitGroup
	failed                   chan error // holds the failure that ended the processor

	leaseUnreachable bool // was reported
}

// minPayload is the least max_payload of the NATS server, 64 KiB: enough for everything
// but large documents.
const minPayload = 64 << 10

// Start opens the database in JetStream and serves it.
//
// Start returns when everything in the log is folded and requests are answered:
// those that change something, too, if it is the writer by then. ctx bounds only
// that. An error says what an operator has to do.
func Start(ctx context.Context, c eventlog.Connections, o Options) (*Processor, error) {
	p, err := start(ctx, c, o)
	if errors.Is(err, ErrDamaged) { // found late; now it is marked, and the log has everything
		p, err = start(ctx, c, o)
	}
	return p, err
}

// ErrDamaged is the error of Failed for a damaged projection: the next Start folds the log
// again.
var ErrDamaged = projections.ErrDamaged

func start(ctx context.Context, c eventlog.Connections, o Options) (_ *Processor, err error) {
	o = o.EnsureDefaults().watched()
	o.Monitor.At("bringing the connections together")
	for _, nc := range c.Followers() {
		eventlog.BringTo(ctx, c.Log, nc)
	}
	o.Monitor.Version, o.Monitor.Objective = o.Version, o.LatenessObjective
	o.Monitor.Starting(o.Events, map[string]*nats.Conn{"log": c.Log, "bulk": c.Bulk, "service": c.Service})
	payload := min(c.Log.MaxPayload(), c.Service.MaxPayload())
	if payload < minPayload {
		return nil, fmt.Errorf("the NATS server accepts messages of at most %d bytes: set its max_payload to %d at least, and to 4 MiB for documents of all sizes", payload, minPayload)
	}
	o.Monitor.At("opening the streams")
	log, err := openStreams(ctx, c, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			log.Close()
		}
	}()
	if err := peers.CheckOthers(ctx, c.Service, o.Database, log.Identity()); err != nil {
		return nil, err
	}
	// Without the timeout of an attempt: the log may be long.
	if err := eventlog.UntilOpen(ctx, c, func(context.Context) error { return log.Check(ctx) }); err != nil {
		return nil, err
	}
	o.Monitor.At("opening the projection")
	if log.Extent, err = eventlog.OpenExtent(o.Projection.FS, o.Dir, log.Identity()); err != nil {
		return nil, err
	}
	snapshots := snapshot.NewStore(log.Bulk, log, o.forSnapshots())
	var store *projections.Store
	var scrub *eventlog.Scrub
	err = eventlog.UntilOpen(ctx, c, func(context.Context) (err error) {
		store, scrub, err = openCaughtUp(ctx, log, snapshots, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	log.ReportLost(store.Cursor().Mutations)
	log.Note(store.Cursor())
	p := &Processor{options: o, store: store, log: log, failed: make(chan error, 1), moves: make(chan handOver)}
	p.writing, p.stopWriting = context.WithCancel(context.Background())
	p.reading, p.stopReading = context.WithCancel(p.writing)
	defer func() {
		if err != nil {
			p.stopWriting()
			p.running.Wait()
			err = snapshot.Closing(store, err)
		}
	}()
	o.Monitor.At("opening the mutations")
	var mutations *eventlog.Mutations
	err = eventlog.UntilOpen(ctx, c, func(try context.Context) (err error) {
		mutations, err = eventlog.OpenMutations(try, log, store.Cursor().Mutations, o.Replicas)
		if err == nil {
			err = log.CheckRights()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	clock := clock.New(o.ForClock(), store.Cursor().Time, len(store.Collections()) == 0)
	snapshots.Now = clock.Millis
	if !o.SameClock {
		if err := clock.Compare(ctx, log.ServerTime); err != nil {
			o.Events(observe.ServerTimeUnknown{Err: err})
		}
	}
	if _, fault := clock.Check(); fault != nil && o.AcceptClock {
		clock.Accept()
	}
	if err := clock.Remember(); err != nil {
		return nil, err
	}
	if foreign := store.Cursor().Foreign; foreign > 0 {
		o.Events(observe.ForeignMessages{Messages: foreign})
	}
	if o.Lease > 0 {
		p.lease = lease.New(log.JS, o.forLease(c.Leave))
	}
	w := writer.New(o.forWriter(payload, p.lease), log, store, clock)
	p.writer = w
	p.retention = &snapshot.Retention{Config: o.forSnapshots(), Log: log, Store: store, Mutations: mutations, Snapshots: snapshots, Clock: clock, Noter: w,
		Stale: o.Retain > 0}
	p.service = &service.Service{Config: o.forService(), Store: store, Log: log, Mutations: mutations, Writer: w, Retention: p.retention, Clock: clock, Lease: p.lease}
	p.service.Engine, err = query.New(query.Options{
		Limits:     o.Query,
		Secret:     log.Secret("cursors"),
		Conditions: o.conditions,
		Pacer: func() func(context.Context, time.Duration) {
			return p.service.Pacer(service.QueryPause * time.Duration(o.QueryWorkers))
		},
	})
	if err != nil {
		return nil, err
	}
	o.Monitor.SampleStorage(ctx, p)
	o.Monitor.At("becoming the writer")
	first, err := p.firstTerm(ctx)
	if err != nil {
		return nil, err
	}
	role := observe.Standby
	if first != nil {
		role = observe.Writer
	}
	if err := p.service.Serve(c.Service, role); err != nil {
		if first != nil {
			p.stopWriting()
			_ = p.finish(first)
		}
		return nil, err
	}
	o.Events(observe.RoleChanged{To: role, Why: "it has started"})
	p.run(c, first, scrub)
	o.Monitor.Serving(p)
	o.Monitor.At("serving")
	return p, nil
}

// openCaughtUp opens the projection and folds the log to its present end. It starts
// over if the retention of another process, the writer, has trimmed events in between.
func openCaughtUp(ctx context.Context, log *eventlog.Log, snapshots *snapshot.Store, o Options) (*projections.Store, *eventlog.Scrub, error) {
	for tries := 0; ; tries++ {
		store, err := snapshot.OpenProjection(ctx, log, snapshots, o.forSnapshots())
		if err != nil {
			return nil, nil, err
		}
		snapshots.Store = store
		scrub, err := catchUp(ctx, log, store, o)
		if err == nil {
			return store, scrub, nil
		}
		if err = snapshot.Closing(store, err); tries == maxTrimmed || !errors.Is(err, eventlog.ErrTrimmed) {
			return nil, nil, err
		}
	}
}

// maxTrimmed is how often a start tolerates that. A catch-up slower than retention will
// never end.
const maxTrimmed = 3

// catchUp checks the newest part of the log and folds the log to its present end.
func catchUp(ctx context.Context, log *eventlog.Log, store *projections.Store, o Options) (*eventlog.Scrub, error) {
	o.Monitor.At("reading the log")
	_, last, err := log.Bounds(ctx)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", log.DB.LogStream(), err)
	}
	scrub, err := eventlog.NewScrub(ctx, log, store.Cursor())
	if err == nil {
		err = scrub.Newest(ctx)
	}
	if err != nil {
		return nil, err
	}
	from, began := store.Cursor().Seq, time.Now()
	err = log.CatchUp(ctx, store, last, func(seq uint64) {
		o.Events(observe.CatchingUp{Seq: seq, End: last})
		if o.Progress != nil {
			o.Progress(seq, last)
		}
	})
	if err == nil {
		seq := store.Cursor().Seq
		o.Events(observe.CaughtUp{Seq: seq, Events: seq - from, Took: time.Since(began)})
	}
	return scrub, err
}

// run starts the background work; first is the term that has begun, nil for a standby.
func (p *Processor) run(c eventlog.Connections, first *term, scrub *eventlog.Scrub) {
	p.running.Go(func() { eventlog.KeepTogether(p.writing, c.Log, c.Followers()...) })
	p.running.Go(func() { p.options.Monitor.Watch(p.writing) })
	p.running.Go(func() { p.options.Monitor.WatchStorage(p.writing, p) })
	p.running.Go(func() { p.index(p.writing) })
	p.running.Go(func() { p.keepFlushed(p.writing) })
	p.running.Go(func() { p.scrubRest(p.writing, scrub) })
	p.running.Go(func() { p.retention.Run(p.reading) })
	serverTime := p.log.ServerTime
	if p.options.SameClock {
		serverTime = nil
	}
	p.running.Go(func() { p.service.Clock.Watch(p.writing, serverTime) })
	p.running.Go(func() {
		select {
		case err := <-p.store.Damaged():
			p.fail(fmt.Errorf("%w: the next start folds the log again", err))
		case <-p.store.Failed():
			p.fail(p.store.Failure())
		case <-p.writing.Done():
		}
	})
	p.running.Go(func() { p.roles(first) })
}

// flushInterval bounds what a start after a crash folds again, as the size of memtables
// does.
const flushInterval = time.Minute

// keepFlushed flushes the projection to disk every flushInterval, until ctx ends.
func (p *Processor) keepFlushed(ctx context.Context) {
	next := time.NewTicker(flushInterval)
	defer next.Stop()
	for flushed := uint64(0); ; {
		select {
		case <-next.C:
		case <-ctx.Done():
			return
		}
		// Fold reports a full disk.
		if seq := p.store.Cursor().Seq; seq != flushed && p.store.Flush(ctx) == nil {
			flushed = seq
		}
	}
}

// indexSlice is the number of documents indexed between two pauses.
const indexSlice = 256

// index builds indexes and updates lazy ones, until ctx ends.
func (p *Processor) index(ctx context.Context) {
	pace := p.service.Pacer(service.IndexPause)
	building := p.store.Building()
	for {
		select {
		case <-p.store.IndexWork():
		case <-ctx.Done():
			return
		}
		began := time.Now()
		if _, err := p.store.Index(indexSlice); err != nil {
			p.fail(fmt.Errorf("index documents: %w", err))
			return
		}
		building = p.indexesBuilt(building)
		pace(ctx, time.Since(began))
	}
}

// indexesBuilt emits IndexBuilt for the collections whose indexes are complete now and
// were not before, and returns those whose are not.
func (p *Processor) indexesBuilt(before []schema.CollectionName) (now []schema.CollectionName) {
	now = p.store.Building()
	for _, name := range before {
		if _, there := p.store.Collection(name); there && !slices.Contains(now, name) {
			p.options.Events(observe.IndexBuilt{Collection: name})
		}
	}
	return now
}

// fail keeps the first failure.
func (p *Processor) fail(err error) {
	if failure := p.store.Failure(); failure != nil {
		err = failure // the cause of err
	}
	p.options.Events(observe.Failed{Err: err})
	select {
	case p.failed <- err:
	default:
	}
}

// Failed receives the error, if any, that keeps the processor from continuing. It then
// decides no mutations: stop it and start another.
func (p *Processor) Failed() <-chan error { return p.failed }

// AcceptClock trusts the machine's clock as it is.
func (p *Processor) AcceptClock() { p.service.Clock.Accept() }

// Stop answers the requests under way, waits for events in flight, and flushes the
// projection.
func (p *Processor) Stop() error {
	p.options.Monitor.Stopping()
	p.options.Monitor.At("waiting for the last requests")
	p.stopReading()
	err := p.service.Stop()
	p.stopWriting()
	p.options.Monitor.At("waiting for the writer and for snapshots")
	p.running.Wait()
	p.options.Monitor.At("answering the last requests")
	p.service.Finish()
	select {
	case failure := <-p.failed:
		err = errors.Join(err, failure)
	default:
	}
	p.log.Close()
	p.options.Monitor.Stopped()
	p.options.Monitor.At("closing the projection")
	return snapshot.Closing(p.store, err)
}

// Role returns the present role.
func (p *Processor) Role() observe.Role { return p.service.Role() }

// Seq returns the sequence of the last event folded.
func (p *Processor) Seq() uint64 { return p.store.Cursor().Seq }

// Requests returns the number of requests so far, queries and forecasts left out.
func (p *Processor) Requests() uint64 { return p.service.Writer.Requests.Load() }

// Status returns the body of a status reply.
func (p *Processor) Status(ctx context.Context) (schema.Status, error) { return p.service.Status(ctx) }

// scrubRest checks the older part of the log in the background. Damage there is reported
// and does not end serving: the projection is right, but the log is no longer complete.
func (p *Processor) scrubRest(ctx context.Context, s *eventlog.Scrub) {
	began := time.Now()
	err := s.Rest(ctx, p.service.Pacer(service.IndexPause), func(err error) { p.options.Events(observe.LogUnread{Err: err}) })
	if ctx.Err() == nil {
		p.options.Events(observe.LogScrubbed{Events: s.From - s.First, Took: time.Since(began), Err: err})
	}
}
