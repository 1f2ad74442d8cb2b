package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/spread"
	"github.com/lapsedb/lapse/schema"
)

// spreading shares the databases of this process with the others that may serve them: it
// announces this one, folds what package spread says, and hands over what another one
// should write. Lease and fence decide who writes, whatever it does.
type spreading struct {
	log     *nats.Conn
	all     []*hosted
	node    string
	version string
	copies  int  // 0 for the default
	writes  bool // this process may write
	lease   time.Duration
	elapsed func() time.Duration
	began   time.Duration // elapsed
	logger  *slog.Logger

	present bool       // NATS has let this process announce itself
	turn    sync.Mutex // one hand-over at a time
	failed  sync.Map   // by database: when a hand-over failed, as elapsed
}

// newSpreading returns nil for a server without other processes.
func (r *run) newSpreading(o processor.Options) *spreading {
	if o.Lease == 0 {
		return nil
	}
	s := &spreading{log: r.target.Log, all: r.databases.all, node: o.Node, version: o.Version, copies: r.Copies, writes: !o.ReadOnly, lease: o.Lease, logger: o.Logger,
		elapsed: func() time.Duration { _, elapsed := o.Clock(); return elapsed }}
	s.began = s.elapsed()
	for _, one := range s.all {
		one.presence = lease.NewPresence(s.log, lease.Config{Database: one.name, TTL: s.lease, Node: s.node, Elapsed: s.elapsed, Twin: r.target.endAsTwin})
		one.options.Processes = one.processes
		one.options.Events = observe.TeeEventListener(one.options.Events.EnsureDefaults(), func(e observe.Event) {
			if e, ok := e.(observe.RoleChanged); ok {
				one.term.change(e.To, s.elapsed())
				one.presence.Announce()
			}
		})
	}
	return s
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

// processes returns who announces itself for the database, for status.
func (one *hosted) processes() (all []schema.Process) {
	for _, m := range one.presence.Members() {
		all = append(all, schema.Process{ID: m.ID, Host: m.Host, PID: m.PID, Version: m.Version, Role: m.Role, Seq: m.Seq, Behind: m.Behind})
	}
	return all
}

// others is how long a start waits to hear of other processes, which answer at once.
const others = time.Second

// start announces this process, and returns when it is known which databases to fold. stop
// says that it leaves; call it before the databases are stopped.
func (s *spreading) start(ctx context.Context) (stop func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	announcing, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var asked []*nats.Subscription
	stop = func() {
		for _, sub := range asked {
			_ = sub.Unsubscribe()
		}
		end()
		running.Wait()
	}
	for _, one := range s.all {
		running.Go(func() {
			if err := one.presence.Run(announcing, func() lease.Member { return s.member(announcing, one) }); err != nil && announcing.Err() == nil {
				s.logger.Warn("this process does not announce itself", "database", string(one.name), "err", err)
			}
		})
		sub, err := s.log.Subscribe(one.name.API()+schema.MoveOperation, func(m *nats.Msg) {
			running.Go(func() { s.asked(announcing, one, m) })
		})
		if err != nil {
			stop()
			return nil, err
		}
		asked = append(asked, sub)
	}
	if len(s.all) > 1 || s.copies > 0 {
		select {
		case <-time.After(min(others, s.lease/2)):
		case <-ctx.Done():
		}
		s.step(ctx)
	}
	running.Go(func() {
		next := time.NewTicker(min(s.lease/4, time.Second))
		defer next.Stop()
		for {
			select {
			case <-next.C:
				s.step(announcing)
			case <-announcing.Done():
				return
			}
		}
	})
	return stop, nil
}

// member returns what this process announces of a database.
func (s *spreading) member(ctx context.Context, one *hosted) lease.Member {
	m := lease.Member{Role: schema.RoleNone, Version: s.version, UpMs: (s.elapsed() - s.began).Milliseconds()}
	_, m.PID = observe.ThisProcess()
	for _, other := range s.all {
		m.Databases = append(m.Databases, other.name)
	}
	if s.writes {
		m.Weight = 1
	}
	p := one.running.Load()
	switch {
	case p == nil:
	case p.Role() == observe.Writer:
		m.Role, m.Seq = schema.RoleWriter, p.Seq()
	default:
		behind, took := p.Behind(ctx)
		m.Role, m.Seq, m.Behind, m.BehindMs = schema.RoleCopy, p.Seq(), behind, took.Milliseconds()
	}
	return m
}

// standings returns how the processes of a database stand, by what they announced.
func (s *spreading) standings(members []lease.Member) (all []spread.Standing) {
	now := s.elapsed()
	for _, m := range members {
		all = append(all, spread.Standing{Process: m.ID, Writes: m.Weight > 0, Copy: m.Role != schema.RoleNone,
			Behind: time.Duration(m.BehindMs) * time.Millisecond, Age: time.Duration(m.UpMs)*time.Millisecond + now - m.At, Silent: now - m.At})
	}
	return all
}

// step begins and ends copies, and hands one database over, if the plan says so.
func (s *spreading) step(ctx context.Context) {
	members := make(map[schema.DatabaseName][]lease.Member)
	var processes []spread.Process
	writers, present := spread.Writers{}, true
	for _, one := range s.all {
		members[one.name] = one.presence.Members()
		present = present && slices.ContainsFunc(members[one.name], func(m lease.Member) bool { return m.ID == s.node })
		for _, m := range members[one.name] {
			processes = append(processes, spread.Process{ID: m.ID, Writes: m.Weight > 0, Databases: m.Databases})
			if m.Role == schema.RoleWriter {
				writers[one.name] = m.ID
			}
		}
	}
	if !present { // for now, or by an earlier configuration of NATS: it serves what it does
		if !s.present && s.elapsed()-s.began > 2*s.lease && s.log.IsConnected() {
			s.present = true // said once
			s.logger.Warn(notPresent)
		}
		return
	}
	s.present = true
	plan := spread.Plan(processes, writers, s.wantedCopies(processes))
	var duties []spread.Duty
	for _, one := range s.all {
		share, p := plan[one.name], one.running.Load()
		standings := s.standings(members[one.name])
		covered := spread.Covered(standings, share.Copies)
		switch {
		case slices.Contains(share.Copies, s.node):
			one.setDuty(dutyServe)
		case p == nil || p.Role() != observe.Writer && covered:
			if covered {
				one.setDuty(dutyRemove)
			} else {
				one.setDuty(dutyIdle)
			}
		}
		if p != nil && p.Role() == observe.Writer {
			duty := spread.Duty{Database: one.name, Share: share, Standings: standings, Term: one.term.lasted(s.elapsed())}
			if at, ok := s.failed.Load(one.name); ok {
				duty.SinceFailure = max(s.elapsed()-at.(time.Duration), 1)
			}
			duties = append(duties, duty)
		}
	}
	if move, ok := spread.Next(s.node, duties, s.lease); ok && s.turn.TryLock() {
		defer s.turn.Unlock()
		one := s.all[slices.IndexFunc(s.all, func(one *hosted) bool { return one.name == move.Database })]
		if err := s.handOver(ctx, one, move.To); err != nil && ctx.Err() == nil {
			s.logger.Warn("a database was not handed over; it will be tried again in a minute", "database", string(one.name), "to", move.To, "err", err)
		}
	}
}

// notPresent is what to do when NATS does not take announcements.
const notPresent = "NATS does not let this process announce itself, so it serves all its databases, and none moves to it or from it: " +
	"let the user of connection log publish and subscribe to $KV.LAPSE_<db>_LEASE.process.*"

// optional reports whether a refusal of NATS is about what an earlier configuration lacks.
func optional(refusal error) bool {
	return strings.Contains(refusal.Error(), "_LEASE.process.") || strings.Contains(refusal.Error(), ".api."+schema.MoveOperation)
}

// wantedCopies returns the number of copies of each database.
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
// turn of its caller.
func (s *spreading) handOver(ctx context.Context, one *hosted, to string) (err error) {
	p := one.running.Load()
	if p == nil {
		return processor.ErrNotWriter
	}
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	defer func() {
		if err != nil {
			s.failed.Store(one.name, s.elapsed())
		}
	}()
	began := s.elapsed()
	if err := p.HandOver(ctx, to); err != nil {
		return err
	}
	look := time.NewTicker(movePoll)
	defer look.Stop()
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("process %s has not taken over within %s", to, moveTimeout)
		}
		for _, m := range one.presence.Members() {
			switch {
			case m.Role != schema.RoleWriter || m.At < began || m.ID == s.node && p.Role() != observe.Writer:
			case m.ID == to:
				s.logger.Info("handed over", "database", string(one.name), "to", to, "took", (s.elapsed() - began).Round(time.Millisecond))
				return nil
			default:
				return fmt.Errorf("process %s was faster than %s", m.ID, to)
			}
		}
	}
}

const (
	moveTimeout = 25 * time.Second // less than a client waits
	movePoll    = 10 * time.Millisecond
)

// asked answers a request to hand a database over; one who does not write it is silent.
func (s *spreading) asked(ctx context.Context, one *hosted, m *nats.Msg) {
	p := one.running.Load()
	if p == nil || p.Role() != observe.Writer || !schema.IsOperatorReply(m.Reply) {
		return
	}
	reply, fault := s.moveAsked(ctx, one, m.Data)
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

// moveAsked hands a database over to the process that the request names, or to any.
func (s *spreading) moveAsked(ctx context.Context, one *hosted, request []byte) (schema.Moved, *schema.Error) {
	moved := schema.Moved{Database: string(one.name), From: s.node}
	if fault := schema.ReadObject("the body of move", request, schema.Text("to", &moved.To)); fault != nil {
		return moved, fault
	}
	if moved.To == s.node {
		return moved, nil
	}
	standings := s.standings(one.presence.Members())
	if moved.To == "" {
		standings = slices.DeleteFunc(standings, func(st spread.Standing) bool { return st.Process == s.node })
		var why error
		if moved.To, why = firstReady(standings, s.lease); why != nil {
			return moved, schema.ErrPreconditionFailed.With("no other process is ready to write database %s: %v; see `lapse status`", one.name, why)
		}
	}
	if err := spread.Ready(standings, moved.To, s.lease); err != nil {
		return moved, schema.ErrPreconditionFailed.With("database %s stays at %s: %v", one.name, s.node, err)
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	err := s.handOver(ctx, one, moved.To)
	switch {
	case errors.Is(err, processor.ErrNotWriter):
		return moved, schema.ErrPreconditionFailed.With("process %s no longer writes database %s: try again", s.node, one.name)
	case err != nil:
		return moved, schema.ErrTimeout.With("%v: `lapse status` says who writes database %s now", err, one.name)
	}
	return moved, nil
}
