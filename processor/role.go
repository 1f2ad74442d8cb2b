package processor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/writer"
)

// A processor is the writer or a standby. What it does as either, and what takes it from
// one to the other:
//
//	standby: follow the log, await the lease ──lease acquired──► lead: read the log to its end,
//	   ▲                                                          move the fence, judge mutations
//	   └──lease released── finish ◄── the term ends ◄── writer ◄──────────┘
//
// A term ends when the lease is lost or handed over, when another process has moved the
// fence, when the writer fails, or with the processor. Why is the cause of its context.
// finish waits for everything that runs in the term, and only then releases the lease.
//
// The lease keeps two processes from trying; the fence keeps two from succeeding
// (eventlog/append.go). Losing either ends the term, and not the processor where there are
// standbys.

// tenure is the processor's part of a term: from the acquisition of the lease to its release.
type tenure struct {
	ctx     context.Context // ends with the term; its cause says why
	end     context.CancelCauseFunc
	running sync.WaitGroup
	ended   error // error of the writer's Run

	handOver handOver // the process to reserve the lease for; any without to
}

// errMoved is the cause of the end of a term that was handed over.
var errMoved = errors.New("it was handed over")

// firstTerm begins a term, or returns nil if another process holds the lease. It does not
// wait for the lease that an earlier process of this node held.
func (p *Processor) firstTerm(ctx context.Context) (*tenure, error) {
	if p.options.ReadOnly {
		return nil, nil
	}
	if p.lease != nil {
		if err := p.firstLease(ctx); ctx.Err() == nil && notNow(err) {
			return nil, nil
		} else if err != nil {
			return nil, fmt.Errorf("acquire the lease: %w", err)
		}
	}
	t, err := p.lead(ctx)
	if ctx.Err() == nil && p.lease != nil && notNow(err) {
		return nil, nil
	}
	return t, err
}

// firstLease takes the lease if it is free. A new bucket may have no leader yet: it waits
// for one for as long as the lease.
func (p *Processor) firstLease(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, p.options.Lease)
	defer cancel()
	return backoff.Retry(func() error {
		err := p.lease.Acquire(waiting, true)
		if !eventlog.Transient(err) {
			return backoff.Permanent(err)
		}
		return err
	}, eventlog.TryForever(waiting))
}

// notNow reports whether an error prevents a term only for now: another process was
// faster, or JetStream has no leader.
func notNow(err error) bool {
	return errors.Is(err, lease.ErrHeld) || errors.Is(err, writer.ErrSuperseded) || errors.Is(err, lease.ErrLeaseLost) || eventlog.Transient(err)
}

// lead begins a term: it reads the log to its end and moves the fence. When it returns no
// earlier writer can append. ctx limits only the beginning.
func (p *Processor) lead(ctx context.Context) (_ *tenure, err error) {
	t := &tenure{}
	t.ctx, t.end = context.WithCancelCause(p.writing)
	defer func() {
		if err != nil {
			t.end(err)
			err = context.Cause(t.ctx) // ErrLeaseLost, if that came first
			_ = p.finish(t)
		}
	}()
	if p.lease != nil {
		for _, lost := range []func(context.Context) error{p.lease.Keep, p.lease.Expire} {
			t.running.Go(func() {
				if err := lost(t.ctx); err != nil {
					t.end(err)
				}
			})
		}
	}
	starting, started := context.WithCancel(t.ctx)
	defer started()
	defer context.AfterFunc(ctx, started)()
	if ctx.Err() != nil {
		started() // at once; AfterFunc takes a moment
	}
	deciding, err := p.writer.Begin(starting)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			deciding.Leave()
		}
	}()
	judged := p.store.Cursor().Mutations
	mutations, err := eventlog.OpenMutations(starting, p.log, judged, 0)
	if err == nil {
		err = mutations.Check(starting, judged, p.options.AcceptLostEnd)
	}
	if err != nil {
		return nil, err
	}
	reading, stopReading := context.WithCancel(t.ctx)
	release := context.AfterFunc(p.reading, stopReading)
	t.running.Go(func() { mutations.Run(reading, judged, p.writer.Mutations) })
	t.running.Go(func() {
		defer release()
		defer stopReading()
		if t.ended = deciding.Run(t.ctx); t.ended != nil {
			t.end(t.ended)
		}
	})
	return t, nil
}

// finish waits for the end of a term and releases the lease. It returns an error if the
// processor cannot go on, or if it stops and has not done all. Mutations that were read and
// not judged are dropped: the next term reads them again, from the last one that the log
// has judged.
func (p *Processor) finish(t *tenure) error {
	<-t.ctx.Done()
	t.running.Wait()
	for len(p.writer.Mutations) > 0 { // the next term reads them again
		<-p.writer.Mutations
	}
	why := context.Cause(t.ctx)
	if p.lease != nil {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		if err := p.lease.Release(ctx, t.handOver.to); err != nil {
			p.options.Events(observe.LeaseReleaseFailed{Err: err})
		}
	}
	if t.handOver.released != nil {
		close(t.handOver.released)
	}
	switch {
	case p.lease != nil && (why == errMoved || errors.Is(why, lease.ErrHeld) || errors.Is(why, writer.ErrSuperseded) || errors.Is(why, lease.ErrLeaseLost)):
		return nil
	case p.writing.Err() != nil:
		return t.ended
	}
	return why
}

// releaseTimeout is how long the release of the lease may take; after a failure it
// expires on its own.
const releaseTimeout = 2 * time.Second

// roles alternates between the roles until the processor stops. t is the term that has
// begun, nil for a standby.
func (p *Processor) roles(t *tenure) {
	for {
		if t != nil {
			select {
			case t.handOver = <-p.moves:
				t.end(errMoved)
			case <-t.ctx.Done():
			}
			if p.writing.Err() == nil && p.lease != nil {
				p.become(observe.Standby, context.Cause(t.ctx))
			}
			if err := p.finish(t); err != nil {
				p.fail(err)
				return
			}
		}
		if p.lease == nil || p.reading.Err() != nil {
			return
		}
		if t = p.standBy(); t == nil {
			return
		}
		if p.reading.Err() == nil {
			p.become(observe.Writer, nil)
		}
	}
}

// standBy follows the log until a term begins. It returns nil if the processor stops or
// has failed.
func (p *Processor) standBy() *tenure {
	for {
		following, stop := context.WithCancel(p.reading)
		var follower sync.WaitGroup
		follower.Go(func() {
			if err := p.follow(following); err != nil {
				p.fail(err)
				stop()
			}
		})
		err := p.await(following)
		stop()
		follower.Wait()
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				p.fail(fmt.Errorf("wait for the lease: %w", err))
			}
			return nil
		}
		p.writer.Clock.Begin(p.store.Cursor().Time, len(p.store.Collections()) == 0)
		t, err := p.lead(p.reading)
		switch {
		case err == nil:
			return t
		case p.reading.Err() != nil:
			return nil
		case notNow(err):
			p.options.Events(observe.TakeoverFailed{Err: err})
		default:
			p.fail(err)
			return nil
		}
	}
}

// await returns when this process holds the lease, or with the error of ctx. One that only
// reads never takes it.
func (p *Processor) await(ctx context.Context) error {
	if p.options.ReadOnly {
		<-ctx.Done()
		return ctx.Err()
	}
	return p.lease.Await(ctx, p.reportLease)
}

// reportLease reports when the lease becomes unreachable, and when it is reachable again.
// err is what keeps this process from taking over, nil if nothing does.
func (p *Processor) reportLease(err error) {
	if err != nil {
		err = p.log.Explain(err)
	}
	p.service.CannotTakeOver(err)
	before := p.leaseUnreachable
	p.leaseUnreachable = err != nil
	switch {
	case err != nil && !before:
		p.options.Events(observe.LeaseUnreachable{Err: err})
	case err == nil && before:
		p.options.Events(observe.LeaseReachable{})
	}
}

// become serves the endpoints of a role and reports the change.
func (p *Processor) become(role observe.Role, why error) {
	if err := p.service.Become(role); err != nil {
		p.fail(err)
		return
	}
	change := observe.RoleChanged{From: observe.Standby, To: observe.Writer, Why: "it has the lease"}
	if role == observe.Standby {
		change = observe.RoleChanged{From: observe.Writer, To: observe.Standby}
		if why != nil {
			change.Why = why.Error()
		}
	}
	p.options.Events(change)
}
