package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
)

// A start opens one thing after the other, and changes nothing before what exists has been
// checked: the streams (openLog), the projection against the log (openProjection), the
// mutations, the clock. Each step that succeeds leaves in undo what ends it; the first that
// fails has all of them ended in reverse.
//
// Requests are answered at the end only, by a state that has the whole log. What a start
// finds damaged in the projection it folds again once, since the log has everything.

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

// starting is a processor that starts.
type starting struct {
	*Processor
	connections eventlog.Connections
	payload     int64 // the largest message in bytes
	snapshots   *snapshot.Store
	scrub       *eventlog.Scrub
	mutations   *eventlog.Mutations
	clock       *clock.Timekeeper
	first       *tenure // the term that has begun, nil for a standby

	// undo has what ends the steps so far after a failure, each with the error before it.
	undo []func(error) error
}

func start(ctx context.Context, c eventlog.Connections, o Options) (*Processor, error) {
	o = o.EnsureDefaults().watched()
	s := &starting{connections: c, Processor: &Processor{options: o, failed: make(chan error, 1), moves: make(chan handOver)}}
	s.writing, s.stopWriting = context.WithCancel(context.Background())
	s.reading, s.stopReading = context.WithCancel(s.writing)
	for _, step := range []struct {
		doing string
		do    func(context.Context) error
	}{
		{"bringing the connections together", s.connect},
		{"opening the streams", s.openLog},
		{"opening the projection", s.openProjection},
		{"opening the mutations", s.openMutations},
		{"checking the clock", s.startClock},
		{"becoming the writer", s.serve},
	} {
		o.Monitor.At(step.doing)
		if err := step.do(ctx); err != nil {
			s.stopWriting()
			s.running.Wait()
			for _, undo := range slices.Backward(s.undo) {
				err = undo(err)
			}
			return nil, err
		}
	}
	s.run(c, s.first, s.scrub)
	o.Monitor.Serving(s.Processor)
	o.Monitor.At("serving")
	return s.Processor, nil
}

// minPayload is the least max_payload of the NATS server, 64 KiB: enough for everything
// but large documents.
const minPayload = 64 << 10

// connect checks the connections, and brings them to one server of a cluster.
func (s *starting) connect(ctx context.Context) error {
	c, o := s.connections, s.options
	for _, nc := range c.Followers() {
		eventlog.BringTo(ctx, c.Log, nc)
	}
	o.Monitor.Version, o.Monitor.Process, o.Monitor.Objective = o.Version, o.Node, o.LatenessObjective
	o.Monitor.Starting(o.Events, map[string]*nats.Conn{"log": c.Log, "bulk": c.Bulk, "service": c.Service})
	if s.payload = min(c.Log.MaxPayload(), c.Service.MaxPayload()); s.payload < minPayload {
		return fmt.Errorf("the NATS server accepts messages of at most %d bytes: set its max_payload to %d at least, and to 4 MiB for documents of all sizes", s.payload, minPayload)
	}
	if s.ownProcess = o.Process == nil; s.ownProcess {
		process, err := peers.Join(ctx, c.Service, peers.Self{ID: o.Node, Version: o.Version, Weight: 1, Lease: o.Lease, Events: o.Events})
		s.options.Process = process
		s.undo = append(s.undo, func(err error) error { process.Leave(); return err })
		return err
	}
	return nil
}

// openLog opens the log, or creates it, and checks it.
func (s *starting) openLog(ctx context.Context) (err error) {
	if s.log, err = openStreams(ctx, s.connections, s.options); err != nil {
		return err
	}
	s.undo = append(s.undo, func(err error) error { s.log.Close(); return err })
	if err := s.options.checkOthers(s.connections, s.log.Identity()); err != nil {
		return err
	}
	// Without the timeout of an attempt: the log may be long.
	err = eventlog.UntilOpen(ctx, s.connections, func(context.Context) error { return s.log.Check(ctx) })
	if err == nil && s.options.Load != nil {
		err = s.log.Fill(ctx, s.options.Load)
	}
	return err
}

// openProjection opens the projection and folds the log to its present end.
func (s *starting) openProjection(ctx context.Context) (err error) {
	o := s.options
	if s.log.Extent, err = eventlog.OpenExtent(o.Projection.FS, o.Dir, s.log.Identity()); err != nil {
		return err
	}
	s.snapshots = snapshot.NewStore(s.log.Bulk, s.log, o.forSnapshots())
	// Without the timeout of an attempt, as above.
	if err := eventlog.UntilOpen(ctx, s.connections, func(context.Context) error { return s.openCaughtUp(ctx) }); err != nil {
		return err
	}
	s.undo = append(s.undo, func(err error) error { return snapshot.Closing(s.store, err) })
	if cursor := s.store.Cursor(); s.options.Load != nil {
		s.options.Timekeeper.Set(cursor.Time)
		if cursor.Foreign > 0 {
			return fmt.Errorf("%d of %d events do not fit the events before them: %w", cursor.Foreign, cursor.Seq, eventlog.ErrNotWhole)
		}
	}
	s.log.ReportLost(s.store.Cursor().Mutations)
	s.log.Note(s.store.Cursor())
	return nil
}

// openCaughtUp opens the projection and folds the log to its present end. It starts over if
// the retention of another process, the writer, has trimmed events in between: then a newer
// snapshot is there to begin with.
func (s *starting) openCaughtUp(ctx context.Context) (err error) {
	for tries := 0; ; tries++ {
		if s.store, err = snapshot.OpenProjection(ctx, s.log, s.snapshots, s.options.forSnapshots()); err != nil {
			return err
		}
		s.snapshots.Store = s.store
		if err = s.catchUp(ctx); err == nil {
			return nil
		}
		if err = snapshot.Closing(s.store, err); tries == maxTrimmed || !errors.Is(err, eventlog.ErrTrimmed) {
			return err
		}
	}
}

// maxTrimmed is how often a start tolerates that. A catch-up slower than retention will
// never end.
const maxTrimmed = 3

// catchUp checks the newest part of the log and folds the log to its present end.
func (s *starting) catchUp(ctx context.Context) error {
	log, store, o := s.log, s.store, s.options
	o.Monitor.At("reading the log")
	_, last, err := log.Bounds(ctx)
	if err != nil {
		return fmt.Errorf("stream %s: %w", log.DB.LogStream(), err)
	}
	if s.scrub, err = eventlog.NewScrub(ctx, log, store.Cursor()); err == nil {
		err = s.scrub.Newest(ctx)
	}
	if err != nil {
		return err
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
	return err
}

// openMutations opens or creates the mutations stream.
func (s *starting) openMutations(ctx context.Context) error {
	return eventlog.UntilOpen(ctx, s.connections, func(try context.Context) (err error) {
		s.mutations, err = eventlog.OpenMutations(try, s.log, s.store.Cursor().Mutations, s.options.Replicas)
		if err == nil {
			err = s.log.CheckRights()
		}
		return err
	})
}

// startClock compares the machine's clock with the log and with NATS.
func (s *starting) startClock(ctx context.Context) error {
	o := s.options
	if s.clock = o.Timekeeper; s.clock == nil {
		s.clock = clock.New(o.ForClock(), s.store.Cursor().Time, len(s.store.Collections()) == 0)
	}
	s.snapshots.Now = s.clock.Millis
	if !o.SameClock {
		if err := s.clock.Compare(ctx, s.log.ServerTime); err != nil {
			o.Events(observe.ServerTimeUnknown{Err: err})
		}
	}
	if _, fault := s.clock.Check(); fault != nil && o.AcceptClock {
		s.clock.Accept()
	}
	return s.clock.Remember()
}

// serve takes a role, and answers requests. It takes the lease before it answers: a process
// that starts alone is the writer from its first reply.
func (s *starting) serve(ctx context.Context) (err error) {
	if foreign := s.store.Cursor().Foreign; foreign > 0 {
		s.options.Events(observe.ForeignMessages{Messages: foreign})
	}
	if err := s.assemble(); err != nil {
		return err
	}
	s.options.Monitor.SampleStorage(ctx, s.Processor)
	if s.first, err = s.firstTerm(ctx); err != nil {
		return err
	}
	role := observe.Standby
	if s.first != nil {
		role = observe.Writer
		s.undo = append(s.undo, func(err error) error { _ = s.finish(s.first); return err })
	}
	if err := s.service.Serve(s.connections.Service, role); err != nil {
		return err
	}
	s.options.Events(observe.RoleChanged{To: role, Why: "it has started"})
	return nil
}

// assemble makes the rooms that serve: writer, retention and service.
func (s *starting) assemble() (err error) {
	p, o := s.Processor, s.options
	if o.Lease > 0 {
		s.lease = lease.New(s.log.JS, o.forLease(s.connections.Leave))
	}
	s.writer = writer.New(o.forWriter(s.payload, s.lease), s.log, s.store, s.clock)
	s.retention = &snapshot.Retention{Config: o.forSnapshots(), Log: s.log, Store: s.store, Mutations: s.mutations, Snapshots: s.snapshots, Clock: s.clock, Noter: s.writer,
		Stale: o.Retain > 0}
	s.service = &service.Service{Config: p.forService(), Store: s.store, Log: s.log, Mutations: s.mutations, Writer: s.writer, Retention: s.retention, Clock: s.clock, Lease: s.lease}
	s.service.Engine, err = query.New(query.Options{
		Limits:     o.Query,
		Secret:     s.log.Secret("cursors"),
		Conditions: o.conditions,
		Pacer: func() func(context.Context, time.Duration) {
			return p.service.Pacer(service.QueryPause * time.Duration(o.QueryWorkers))
		},
	})
	return err
}
