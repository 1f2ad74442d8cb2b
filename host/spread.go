package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/peers"
	"github.com/lapsedb/lapse/processor/spread"
	"github.com/lapsedb/lapse/schema"
)

// Every second or more often each process computes a plan from the replies of all (package
// spread), and does its own part of it: it serves or ends copies, and the writer of a
// database that belongs elsewhere hands it over. Nobody coordinates. A process with older
// replies may compute another plan for a moment; then a database has a copy too many or too
// few, never two writers: who writes is decided by lease and fence alone.
//
// What makes it calm: a copy ends only when enough others have it (spread.Covered); one
// hand-over at a time, and after a failure none of that database for a while (failed); a
// process that hears itself but not yet the others changes nothing (settleTime).

// spreading shares the databases of this process with the others that may serve them: it
// folds what package spread says, and hands over what another one should write. Lease and
// fence decide who writes, whatever it does. nil is for a server without other processes.
//
// Goroutines: one in watch, at each tick; one for each request to move (asked);
// peers.Process has its own. turn keeps hand-overs apart.
type spreading struct {
	log     *nats.Conn
	process *peers.Process
	all     []*hosted
	node    string
	copies  int // 0 for the default
	lease   time.Duration
	elapsed func() time.Duration
	logger  *slog.Logger

	turn   sync.Mutex // one hand-over at a time
	failed sync.Map   // by database: when a hand-over failed, as elapsed
}

// newSpreading returns nil for a server without other processes.
func (r *run) newSpreading(o processor.Options) *spreading {
	if o.Lease == 0 {
		return nil
	}
	s := &spreading{log: r.target.Log, process: o.Process, all: r.databases.all, node: o.Node, copies: r.Copies, lease: o.Lease, logger: o.Logger,
		elapsed: func() time.Duration { _, elapsed := o.Clock(); return elapsed }}
	for _, db := range s.all {
		db.options.Events = observe.TeeEventListener(db.options.Events.EnsureDefaults(), func(e observe.Event) {
			if e, ok := e.(observe.RoleChanged); ok {
				db.term.change(e.To, s.elapsed())
			}
		})
	}
	return s
}

// join makes this process answer those who ask for processes of lapse, and returns what it
// knows of them. The databases start after that.
func (r *run) join(ctx context.Context, o processor.Options) (*peers.Process, error) {
	self := peers.Self{ID: o.Node, Version: o.Version, Databases: r.target.Databases, Weight: 1, Lease: o.Lease, Events: observe.LoggingEventListener(o.Logger), Twin: r.target.endAsTwin}
	if o.ReadOnly {
		self.Weight = 0
	}
	return peers.Join(ctx, r.target.peers, self)
}

// term is when a process became the writer of a database, as elapsed in ns; 0 while it is
// not, or has not said so: its role changes before it is told.
type term struct{ began atomic.Int64 }

func (t *term) change(to observe.Role, elapsed time.Duration) {
	began := int64(0)
	if to == observe.Writer {
		began = max(int64(elapsed), 1)
	}
	t.began.Store(began)
}

// lasted returns how long the term has lasted.
func (t *term) lasted(elapsed time.Duration) time.Duration {
	if began := t.began.Load(); began != 0 {
		return elapsed - time.Duration(began)
	}
	return 0
}

// start asks for the other processes, and returns when it is known which databases to fold.
// Call stop before the databases are stopped: it takes this process out of the others'
// plans while it still answers.
func (s *spreading) start(ctx context.Context) (stop func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	spreading, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var subscriptions []*nats.Subscription
	stop = func() {
		for _, sub := range subscriptions {
			_ = sub.Unsubscribe()
		}
		s.process.Leave()
		end()
		running.Wait()
	}
	for _, db := range s.all {
		sub, err := s.log.Subscribe(db.name.API()+schema.MoveOperation, func(m *nats.Msg) {
			running.Go(func() { s.onMove(spreading, db, m) })
		})
		if err != nil {
			stop()
			return nil, err
		}
		subscriptions = append(subscriptions, sub)
	}
	if len(s.all) > 1 || s.copies > 0 {
		s.step(ctx, append(s.process.Members(), s.process.Own()))
	}
	running.Go(func() { s.process.Watch(spreading) })
	running.Go(func() {
		next := time.NewTicker(min(s.lease/4, time.Second))
		defer next.Stop()
		for {
			select {
			case <-next.C:
				s.watch(spreading)
			case <-spreading.Done():
				return
			}
		}
	})
	return stop, nil
}

// settleTime is how long after its own first reply a process has heard the others.
const settleTime = time.Second

// watch is step by the replies so far. A process that NATS cut off hears itself first: before
// the others are heard, it serves what it does.
func (s *spreading) watch(ctx context.Context) {
	members := s.process.Members()
	if slices.ContainsFunc(members, func(m peers.Member) bool { return m.ID == s.node && time.Since(m.Since) > settleTime }) {
		s.step(ctx, members)
	}
}

// standings returns how the processes of a database stand, by their last replies. An age or
// a silence is measured by this process's clock, so clocks need not agree.
func standings(members []peers.Member, db schema.DatabaseName) (all []spread.Standing) {
	for _, m := range members {
		if of, ok := m.Of(db); ok {
			silent := time.Since(m.At)
			all = append(all, spread.Standing{Process: m.ID, Writes: m.Weight > 0, Older: m.Older, Copy: of.Role != schema.RoleNone,
				Behind: time.Duration(of.BehindMs) * time.Millisecond, Age: time.Duration(m.UpMs)*time.Millisecond + silent, Silent: silent})
		}
	}
	return all
}

// step begins and ends copies, and hands one database over, if the plan says so. A process
// of 0.3.0 can't be told to write or not to: what it serves counts as served. The writer is
// never told to idle here: it hands over first, and idles in a later step.
func (s *spreading) step(ctx context.Context, members []peers.Member) {
	var processes []spread.Process
	writers := spread.Writers{}
	for _, m := range members {
		p := spread.Process{ID: m.ID, Writes: m.Weight > 0}
		for _, of := range m.Databases {
			p.Databases = append(p.Databases, of.Database)
			if of.Role == schema.RoleWriter {
				writers[of.Database] = m.ID
			}
		}
		processes = append(processes, p)
	}
	plan := spread.Plan(processes, writers, s.wantedCopies(processes))
	var duties []spread.Duty
	for _, db := range s.all {
		share, p := plan[db.name], db.running.Load()
		standings := standings(members, db.name)
		covered := spread.Covered(standings, share.Copies)
		switch {
		case slices.Contains(share.Copies, s.node):
			db.setDuty(dutyServe)
		case p == nil || p.Role() != observe.Writer && covered:
			if covered {
				db.setDuty(dutyRemove)
			} else {
				db.setDuty(dutyIdle)
			}
		}
		if p != nil && p.Role() == observe.Writer {
			duty := spread.Duty{Database: db.name, Share: share, Standings: standings, Term: db.term.lasted(s.elapsed())}
			if at, ok := s.failed.Load(db.name); ok {
				duty.SinceFailure = max(s.elapsed()-at.(time.Duration), 1)
			}
			duties = append(duties, duty)
		}
	}
	if move, ok := spread.Next(s.node, duties, s.lease); ok && s.turn.TryLock() {
		defer s.turn.Unlock()
		db := s.all[slices.IndexFunc(s.all, func(db *hosted) bool { return db.name == move.Database })]
		if err := s.handOver(ctx, db, move.To); err != nil && ctx.Err() == nil {
			s.logger.Warn("a database was not handed over; it will be tried again in a minute", "database", string(db.name), "to", move.To, "err", err)
		}
	}
}

// wantedCopies returns the number of copies of each database, as section 12 of the contract
// has it: all while there is one database or there are at most two processes, else two.
func (s *spreading) wantedCopies(processes []spread.Process) int {
	ids := make(map[string]bool)
	for _, p := range processes {
		ids[p.ID] = true
	}
	switch {
	case s.copies > 0:
		return s.copies
	case len(s.all) == 1 || len(ids) <= 2:
		return max(len(ids), 1)
	}
	return 2
}

// handOver hands a database over, and returns when the other process writes. It takes a
// turn of its caller. Before anything stops it asks the other process for an answer now:
// its last reply may be a second old, and a database without a writer is worse than one
// that stays.
func (s *spreading) handOver(ctx context.Context, db *hosted, to string) (err error) {
	p := db.running.Load()
	if p == nil {
		return processor.ErrNotWriter
	}
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	defer func() {
		if err != nil {
			s.failed.Store(db.name, s.elapsed())
		}
	}()
	if !s.process.Answers(ctx, to) {
		return &spread.NotReady{Process: to, Why: "does not answer now"}
	}
	began := time.Now()
	if err := p.HandOver(ctx, to); err != nil {
		return err
	}
	writer, err := s.process.Hear(ctx, began, func(m peers.Member) bool {
		of, _ := m.Of(db.name)
		return of.Role == schema.RoleWriter && (m.ID != s.node || p.Role() == observe.Writer)
	})
	switch {
	case err != nil:
		return fmt.Errorf("process %s has not taken over within %s", to, moveTimeout)
	case writer.ID != to:
		return fmt.Errorf("process %s took over instead of %s", writer.ID, to)
	}
	s.logger.Info("handed over", "database", string(db.name), "to", to, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// moveTimeout is how long a hand-over may take: less than a client waits.
const moveTimeout = 25 * time.Second

// onMove answers a request to hand a database over; only the writer answers. Others would
// send errors that the client takes for the answer. A reply subject that is no operator's
// gets none.
func (s *spreading) onMove(ctx context.Context, db *hosted, m *nats.Msg) {
	p := db.running.Load()
	if p == nil || p.Role() != observe.Writer || !schema.IsOperatorReply(m.Reply) {
		return
	}
	reply, fault := s.move(ctx, db, m.Data)
	answer := nats.NewMsg(m.Reply)
	if fault != nil {
		answer.Header.Set(schema.HeaderStatus, fmt.Sprint(fault.Code))
		answer.Data = fault.AppendJSON(nil)
	} else {
		answer.Header.Set(schema.HeaderStatus, "200")
		answer.Data, _ = json.Marshal(reply)
	}
	_ = s.log.PublishMsg(answer) // or there is no connection
}

// firstReady returns a process that can take a database over. The error says why none can:
// what the first lacks.
func firstReady(standings []spread.Standing, lease time.Duration) (process string, err error) {
	err = errors.New("there is none")
	for i, st := range standings {
		switch why := spread.Ready(standings, st.Process, lease); {
		case why == nil:
			return st.Process, nil
		case i == 0:
			err = why
		}
	}
	return "", err
}

// move hands a database over to the process that the request names, or to any.
func (s *spreading) move(ctx context.Context, db *hosted, request []byte) (schema.Moved, *schema.Error) {
	moved := schema.Moved{Database: string(db.name), From: s.node}
	if fault := schema.ReadObject("the body of move", request, schema.Text("to", &moved.To)); fault != nil {
		return moved, fault
	}
	if moved.To == s.node {
		return moved, nil
	}
	standings := standings(s.process.Members(), db.name)
	if moved.To == "" {
		standings = slices.DeleteFunc(standings, func(st spread.Standing) bool { return st.Process == s.node })
		var why error
		if moved.To, why = firstReady(standings, s.lease); why != nil {
			return moved, schema.ErrPreconditionFailed.With("no other process is ready to write database %s: %v; see `lapse status`", db.name, why)
		}
	}
	if err := spread.Ready(standings, moved.To, s.lease); err != nil {
		return moved, schema.ErrPreconditionFailed.With("database %s stays at %s: %v", db.name, s.node, err)
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	err := s.handOver(ctx, db, moved.To)
	switch {
	case errors.As(err, new(*spread.NotReady)):
		return moved, schema.ErrPreconditionFailed.With("database %s stays at %s: %v", db.name, s.node, err)
	case errors.Is(err, processor.ErrNotWriter):
		return moved, schema.ErrPreconditionFailed.With("process %s no longer writes database %s: try again", s.node, db.name)
	case err != nil:
		return moved, schema.ErrTimeout.With("%v: `lapse status` says who writes database %s now", err, db.name)
	}
	return moved, nil
}
