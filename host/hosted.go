package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/lease"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// hosted is one database of the process. After a failure it is restarted if the process
// has others, which a restart of the process would interrupt, or if it can begin with a
// snapshot.
type hosted struct {
	name        schema.DatabaseName
	connections eventlog.Connections
	options     processor.Options
	damage      error           // damaged streams, which prevent its start
	presence    *lease.Presence // nil if no other process can serve it

	term    atomic.Int64  // when it became the writer, as elapsed in ns
	idle    atomic.Bool   // other processes have the copies of it: it is not to be served
	spare   atomic.Bool   // these serve it: its projection is not needed here
	changed chan struct{} // idle or spare has changed

	running  atomic.Pointer[processor.Processor] // nil while it is not served
	stopped  atomic.Bool
	failure  error // why it is not served; owned by the goroutine that starts and keeps it
	reported string
}

// databases is all databases of a run.
type databases struct {
	all    []*hosted
	events func(Event)

	starts  chan struct{} // limits concurrent starts
	serving atomic.Int64  // those that have not failed
	lost    chan error    // receives the failure of the last database that was served
}

// A failed database is restarted after a pause, which doubles. It is reset once the
// database has been served for longer than mostPause.
const (
	leastPause = time.Second
	mostPause  = time.Minute
)

// startsAtOnce bounds the databases that start at the same time: each holds up to 40 MiB
// of events while it folds.
const startsAtOnce = 8

func newDatabases(all []*hosted, events func(Event)) *databases {
	return &databases{all: all, events: events, starts: make(chan struct{}, startsAtOnce), lost: make(chan error, 1)}
}

// start starts all databases that are not idle, and returns when each is served or has
// failed.
func (d *databases) start(ctx context.Context) {
	var starting sync.WaitGroup
	for _, one := range d.all {
		if one.idle.Load() {
			one.rest()
			d.serving.Add(1)
			continue
		}
		starting.Go(func() { d.startOne(ctx, one) })
	}
	starting.Wait()
}

// want has the database served, or not; spare is whether the copies elsewhere serve it.
func (one *hosted) want(served, spare bool) {
	was, wasSpare := one.idle.Swap(!served), one.spare.Swap(spare)
	if was == !served && wasSpare == spare {
		return
	}
	select {
	case one.changed <- struct{}{}:
	default:
	}
}

// forget removes the projection of a database that is not served, if it is spare.
func (one *hosted) forget() {
	if !one.spare.Load() {
		return
	}
	if err := os.RemoveAll(one.options.Dir); err != nil {
		one.options.Logger.Warn("the projection of a copy that has ended stays: remove it while lapse is down", "dir", one.options.Dir, "err", err)
	}
}

// rest reports that the database is not served, and need not be.
func (one *hosted) rest() {
	one.options.Monitor.Idle()
	if one.presence != nil {
		one.presence.Announce()
	}
}

func (d *databases) startOne(ctx context.Context, one *hosted) (started bool) {
	if one.damage != nil {
		d.failed(one, one.damage)
		return false
	}
	d.starts <- struct{}{}
	p, err := processor.Start(ctx, one.connections, one.options)
	<-d.starts
	if err == nil {
		one.failure = nil
		d.serving.Add(1)
		one.running.Store(p)
		if one.presence != nil {
			one.presence.Announce()
		}
	} else if ctx.Err() == nil {
		d.failed(one, err)
	}
	return err == nil
}

// failed records a failure. It reports it unless it was the last one reported or the
// database is the only one, whose failure Run returns.
func (d *databases) failed(one *hosted, err error) {
	one.failure = err
	one.options.Monitor.Listener()(observe.Failed{Err: err})
	if text := schema.Describe(err); len(d.all) > 1 && text != one.reported {
		one.reported = text
		d.events(NotServed{one.notServed(err)})
	}
}

// gone counts a database that is no longer served because of err.
func (d *databases) gone(err error) {
	if d.serving.Add(-1) == 0 {
		d.lost <- err
	}
}

func (one *hosted) stop(p *processor.Processor) {
	if err := p.Stop(); err != nil {
		one.options.Logger.Warn("the processor did not stop cleanly", "err", err)
	}
}

func (one *hosted) notServed(err error) error {
	return fmt.Errorf("database %s is not served: %w", one.name, err)
}

// keep serves the databases that have started, and starts others again, until stop is
// called, once. stop returns the errors of the databases that did not stop cleanly or are
// not served.
func (d *databases) keep() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	errs := make([]error, len(d.all))
	var keeping sync.WaitGroup
	for i, one := range d.all {
		keeping.Go(func() {
			errs[i] = d.keepOne(ctx, one)
			one.stopped.Store(true)
		})
	}
	return func() error {
		cancel()
		keeping.Wait()
		return d.left(errs)
	}
}

// left returns one error of the errors of all databases.
func (d *databases) left(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	var left []string
	for i, err := range errs {
		if err != nil {
			left = append(left, schema.Describe(d.all[i].notServed(err)))
		}
	}
	if left == nil {
		return nil
	}
	return errors.New(strings.Join(left, "; "))
}

func (d *databases) keepOne(ctx context.Context, one *hosted) error {
	pause := leastPause
	for {
		if p := one.running.Load(); p != nil {
			began := time.Now()
			select {
			case <-ctx.Done():
				return p.Stop()
			case <-one.changed:
				if one.idle.Load() {
					one.running.Store(nil)
					one.stop(p)
					one.forget()
					one.rest()
				}
				continue
			case err := <-p.Failed():
				if d.fell(ctx, one, p, err) {
					continue
				}
			}
			if time.Since(began) > mostPause {
				pause = leastPause
			}
		}
		if one.damage != nil || len(d.all) == 1 && one.failure != nil {
			<-ctx.Done()
			return one.failure
		}
		resting := one.failure == nil
		var again <-chan time.Time
		if !resting {
			again = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return one.failure
		case <-one.changed:
		case <-again:
			pause = min(2*pause, mostPause)
		}
		switch {
		case one.idle.Load() && !resting: // it need not be served any more
			one.failure, one.reported = nil, ""
			d.serving.Add(1)
			one.rest()
		case one.idle.Load():
			one.forget()
		case !d.startOne(ctx, one):
			if resting && one.failure != nil {
				d.gone(one.failure)
			}
		case resting:
			d.serving.Add(-1) // startOne has counted the database again
		default:
			one.reported = ""
			d.events(ServedAgain{one.name})
		}
	}
}

// fell stops the processor of a database that has failed. It reports whether another one
// serves it: a start begins with a snapshot where the log was trimmed, and folds the log
// again where the projection is damaged.
func (d *databases) fell(ctx context.Context, one *hosted, p *processor.Processor, err error) (again bool) {
	one.running.Store(nil)
	if !errors.Is(err, eventlog.ErrTrimmed) && !errors.Is(err, processor.ErrDamaged) {
		d.failed(one, err)
		d.gone(err)
		one.stop(p)
		return false
	}
	one.stop(p)
	if d.startOne(ctx, one) {
		d.serving.Add(-1) // startOne has counted the database again
		return true
	}
	d.gone(one.failure)
	return false
}

// served returns the databases with their roles.
func (d *databases) served() (all []Served) {
	for _, one := range d.all {
		served := Served{Name: one.name}
		if p := one.running.Load(); p != nil {
			served.Role = p.Role()
		} else if one.idle.Load() {
			served.Role = observe.None
		}
		all = append(all, served)
	}
	return all
}

// doing describes the activity of the databases that have not stopped.
func (d *databases) doing() string {
	if len(d.all) == 1 {
		return d.all[0].options.Monitor.Doing()
	}
	var all []string
	for _, one := range d.all {
		if !one.stopped.Load() {
			all = append(all, fmt.Sprintf("%s (database %s)", one.options.Monitor.Doing(), one.name))
		}
	}
	return strings.Join(all, ", ")
}

// each calls do with every database that is served.
func (d *databases) each(do func(*processor.Processor)) {
	for _, one := range d.all {
		if p := one.running.Load(); p != nil {
			do(p)
		}
	}
}

// sum adds up a counter. It may fall when a database fails.
func (d *databases) sum(counter func(*processor.Processor) uint64) func() uint64 {
	return func() (sum uint64) {
		d.each(func(p *processor.Processor) { sum += counter(p) })
		return sum
	}
}
