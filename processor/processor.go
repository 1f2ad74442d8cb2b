// Package processor puts the rooms together to serve one database: it opens the log and
// the projection, folds, and takes the role of writer or standby.
//
// Start reading at Start (start.go) and roles (role.go), where the lease is taken. The flow of
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

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/service"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// What runs in a processor, besides the goroutines of its rooms, and until when. Two
// contexts end one after the other:
//
//	reading   retention, following, waiting for the lease, mutations   ends first, in Stop
//	writing   the writer, its log, index builds, flushes, the clock    ends when requests are answered
//
// So a stop answers what was received, appends and folds what was decided, and only then
// stops the rest. A failure goes to failed, once; the processor does not stop itself: who
// started it decides (host/hosted.go).

// Processor serves one database: it folds the log and answers reads. As the writer it also
// decides mutations and expires what is due. Its fields are set by Start and not changed
// afterwards, but for leaseUnreachable, which the goroutine of roles has.
type Processor struct {
	options    Options
	store      *projections.Store
	log        *eventlog.Log
	service    *service.Service
	writer     *writer.Writer
	retention  *snapshot.Retention
	lease      *lease.Lease // nil without standbys
	ownProcess bool         // options.Process serves this database only
	moves      chan handOver

	reading, writing         context.Context
	stopReading, stopWriting context.CancelFunc
	running                  sync.WaitGroup
	failed                   chan error // holds the failure that ended the processor

	leaseUnreachable bool // was reported
}

// run starts the background work; first is the term that has begun, nil for a standby.
func (p *Processor) run(c eventlog.Connections, first *tenure, scrub *eventlog.Scrub) {
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
	if p.ownProcess && p.lease != nil {
		p.running.Go(func() { p.options.Process.Watch(p.writing) })
	}
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

// fail keeps the first failure, or the failure of the projection that caused it.
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
// projection. Monitor has the step that hangs, if one does. It returns the failure that
// ended the processor, too.
func (p *Processor) Stop() error {
	p.options.Monitor.Stopping()
	p.options.Monitor.At("waiting for the last requests")
	p.stopReading()
	if p.ownProcess {
		p.options.Process.Leave()
	}
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
	err := s.Rest(ctx, p.service.Pacer(service.QueryPause), func(err error) { p.options.Events(observe.LogUnread{Err: err}) })
	if ctx.Err() == nil {
		p.options.Events(observe.LogScrubbed{Events: s.From - s.First, Took: time.Since(began), Err: err})
	}
}
