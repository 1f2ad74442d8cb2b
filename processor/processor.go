package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/query"
	"github.com/lapsedb/lapse/schema"
)

// Processor serves one database: it folds the log, decides mutations, expires
// what is due and answers requests.
type Processor struct {
	options Options
	store   *projections.Store
	log     *eventLog
	service *service
	writer  *writer
	keeper  *keeper

	stopReading, stopWriting context.CancelFunc
	running                  sync.WaitGroup
	failed                   chan error // holds what ended the writer, if not Stop
}

// minPayload is the least that a message of the NATS server must hold, with
// which everything but large documents goes: 64 KiB.
const minPayload = 64 << 10

// Start opens the database behind NATS and serves it. logConn reads and writes
// the streams; serviceConn serves requests, and needs no right but to publish
// to inboxes. Both stay the caller's to close, after Stop; ConnectOptions suit them.
//
// Start returns when everything in the log is folded and requests are
// answered; ctx bounds only that. An error says what an operator has to do.
func Start(ctx context.Context, logConn, serviceConn *nats.Conn, o Options) (_ *Processor, err error) {
	o = o.EnsureDefaults().watched()
	payload := min(logConn.MaxPayload(), serviceConn.MaxPayload())
	if payload < minPayload {
		return nil, fmt.Errorf("the NATS server takes messages of at most %d bytes: set its max_payload to %d at least, and to 4 MiB for documents of all sizes", payload, minPayload)
	}
	o.Monitor.starting(o.Events, map[string]*nats.Conn{"log": logConn, "service": serviceConn})
	log, err := openLog(ctx, logConn, o.Database, o.Events)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			log.close()
		}
	}()
	if err := log.check(ctx); err != nil {
		return nil, err
	}
	snapshots := snapshotsOf(log.js, log, o)
	store, err := openProjection(ctx, log, snapshots, o)
	if err != nil {
		return nil, err
	}
	snapshots.store = store
	p := &Processor{options: o, store: store, log: log, failed: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = closing(store, err)
		}
	}()
	_, last, err := log.Bounds(ctx)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", o.Database.LogStream(), err)
	}
	scrub, err := newScrub(ctx, log, store.Cursor())
	if err == nil {
		err = scrub.newest(ctx)
	}
	if err != nil {
		return nil, err
	}
	from, began := store.Cursor().Seq, time.Now()
	if err := log.CatchUp(ctx, store, last, func(seq uint64) {
		o.Events.CatchingUp(CatchUpProgress{Seq: seq, End: last})
		if o.Progress != nil {
			o.Progress(seq, last)
		}
	}); err != nil {
		return nil, err
	}
	o.Events.CaughtUp(CatchUp{Seq: store.Cursor().Seq, Events: store.Cursor().Seq - from, Took: time.Since(began)})
	mutations, err := openMutations(ctx, log.js, o.Database, store.Cursor().Mutations, o.Events)
	if err != nil {
		return nil, err
	}
	clock := newTimekeeper(o, store.Cursor().Time, len(store.Collections()) == 0)
	snapshots.now = clock.millis
	if !o.SameClock {
		if err := clock.compare(ctx, log.ServerTime); err != nil {
			o.Events.ServerTimeUnknown(err)
		}
	}
	if _, fault := clock.check(); fault != nil && o.AcceptClock {
		clock.accept()
	}
	w := &writer{
		options: o, log: log, store: store, name: nuid.Next(),
		wishes: make(chan *wish, o.Queue), mutations: make(chan *schema.Mutation, mutationsQueued),
		clock: clock, lateness: newLateness(),
	}
	if _, err := w.start(ctx, nil); err != nil {
		return nil, err
	}
	if w.machine, err = NewMachine(store); err != nil {
		return nil, err
	}
	w.machine.largest = int(payload) - headerRoom - systemRoom
	if foreign := store.Cursor().Foreign; foreign > 0 {
		o.Events.ForeignMessages(ForeignCount{Messages: foreign})
	}
	p.writer = w
	p.keeper = &keeper{options: o, log: log, store: store, mutations: mutations, snapshots: snapshots, clock: clock, wishes: w.wishes,
		stale: o.Retain > 0}
	p.service = &service{options: o, store: store, log: log, mutations: mutations, writer: w, keeper: p.keeper, clock: clock}
	p.service.engine, err = query.New(query.Options{
		Limits: o.Query,
		Secret: log.Secret("cursors"),
		Pacer: func() func(context.Context, time.Duration) {
			return p.service.pacer(queryPause * time.Duration(o.QueryWorkers))
		},
	})
	if err != nil {
		return nil, err
	}
	p.run(log, mutations, scrub)
	if err := p.service.serve(serviceConn); err != nil {
		p.stopWriting()
		p.running.Wait()
		return nil, err
	}
	o.Events.RoleChanged(RoleChange{To: roleWriter, Why: "it is the only one"})
	o.Monitor.serving(p)
	return p, nil
}

// run starts the goroutines that read mutations and write the log.
func (p *Processor) run(log *eventLog, mutations *mutationStream, scrub *scrub) {
	writing, stopWriting := context.WithCancel(context.Background())
	reading, stopReading := context.WithCancel(writing)
	p.stopWriting, p.stopReading = stopWriting, stopReading
	p.running.Go(func() { p.options.Monitor.watch(writing) })
	p.running.Go(func() { p.index(writing) })
	p.running.Go(func() { p.scrubRest(writing, scrub) })
	p.running.Go(func() { p.keeper.run(reading) })
	if !p.options.SameClock {
		p.running.Go(func() { p.service.clock.watch(writing, log.ServerTime) })
	}
	p.running.Go(func() {
		select {
		case err := <-p.store.Damaged():
			p.fail(fmt.Errorf("%w: start again, and the log is folded anew", err))
		case <-p.store.Failed():
			p.fail(p.store.Failure())
		case <-writing.Done():
		}
	})
	p.running.Go(func() { mutations.run(reading, p.store.Cursor().Mutations, p.writer.mutations) })
	p.running.Go(func() {
		defer stopReading()
		if err := p.writer.run(writing); err != nil {
			p.fail(err)
		}
	})
}

// indexSlice is how many documents are indexed before the writer gets its turn.
const indexSlice = 256

// index builds indexes and has lazy ones follow the documents, until ctx ends.
func (p *Processor) index(ctx context.Context) {
	pace := p.service.pacer(indexPause)
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

// indexesBuilt tells of the collections whose indexes were being built before and
// are not now, and returns those whose are.
func (p *Processor) indexesBuilt(before []schema.CollectionName) (now []schema.CollectionName) {
	now = p.store.Building()
	for _, name := range before {
		if _, there := p.store.Collection(name); there && !slices.Contains(now, name) {
			p.options.Events.IndexBuilt(IndexBuild{Collection: name})
		}
	}
	return now
}

// fail keeps the first failure.
func (p *Processor) fail(err error) {
	if failure := p.store.Failure(); failure != nil {
		err = failure // of which err came
	}
	p.options.Events.Failed(err)
	select {
	case p.failed <- err:
	default:
	}
}

// Failed is sent what made going on impossible, if anything does. The
// processor answers no mutations then: stop it and start another.
func (p *Processor) Failed() <-chan error { return p.failed }

// AcceptClock takes the machine's clock for right if it is not believed.
func (p *Processor) AcceptClock() { p.service.clock.accept() }

// Stop ends serving: requests under way are answered, what was decided is
// waited for, and the projection is flushed.
func (p *Processor) Stop() error {
	p.options.Monitor.stopping()
	p.stopReading()
	err := p.service.stop()
	p.stopWriting()
	p.running.Wait()
	p.service.finish()
	select {
	case failure := <-p.failed:
		err = errors.Join(err, failure)
	default:
	}
	p.log.close()
	p.options.Monitor.stopped()
	return closing(p.store, err)
}

// closing closes the projection, if there is one, after err, which may be nil.
func closing(store *projections.Store, err error) error {
	if store == nil {
		return err
	}
	err = errors.Join(err, store.Close())
	if failure := store.Failure(); failure != nil {
		return failure // of which the rest came
	}
	return err
}

// Seq returns the sequence of the last event folded.
func (p *Processor) Seq() uint64 { return p.store.Cursor().Seq }

// Requests returns how many requests there were, besides queries.
func (p *Processor) Requests() uint64 { return p.service.others.Load() }

// Status says how the database is.
func (p *Processor) Status(ctx context.Context) (schema.Status, error) { return p.service.Status(ctx) }

// waitUntil polls, since NATS tells nobody when a subscription has drained.
func waitUntil(timeout time.Duration, done func() bool) {
	for deadline := time.Now().Add(timeout); !done() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}
