package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/schema"
)

// Each database of the process has a duty, which the plan of spread.go sets, and is in one of
// these states:
//
//	      dutyServe: start            another duty: stop
//	idle ──────────────────► served ─────────────────────► idle
//	                         │    ▲
//	          failure: stop  ▼    │  start: after a pause, or at once where that repairs
//	                         failed
//
// With dutyRemove an idle database loses its projection. A failed one that becomes idle is
// forgiven. Streams that are damaged, and the failure of the only database, are final.
//
// Who may change what: anybody sets a duty, by setDuty. One goroutine for each database, that of
// its first start and then superviseOne, starts and stops its processor, removes its files, and
// owns failure and reported. Others read sound and running, and call what running points to,
// which may have stopped.
//
// What may be under way: a start or a stop of each database, startsAtOnce starts in all. A duty
// that changes meanwhile counts afterwards: changed holds one signal, and the duty is read after
// it, so that of several only the last one counts.
//
// Why it is safe:
//
//   - A processor starts after the one before it has stopped, on the same goroutine: a projection
//     has one user, and the term of a process one lease.
//   - A projection is removed while no processor runs here, and after the plan has seen that
//     enough other processes serve the database. The log has everything; it could be folded again.
//   - The writer of a database gets no other duty than dutyServe before it has handed over
//     (spread.go), so that no plan stops the writes.
//   - The process ends when its last sound database fails. One that is idle is sound: others are
//     not served by restarting.

// hosted is one database of the process. After a failure it is restarted if the process
// has others, which a restart of the process would interrupt, or if it can begin with a
// snapshot.
type hosted struct {
	name        schema.DatabaseName
	connections eventlog.Connections
	options     processor.Options
	damage      error // damaged streams, which prevent its start

	term term

	duty    atomic.Int32  // a duty; setDuty changes it
	changed chan struct{} // duty has changed

	// sound: it is served, or idle by plan; also while the processor is replaced after a
	// failure that a start repairs.
	sound    atomic.Bool
	running  atomic.Pointer[processor.Processor] // nil while it is not served
	failure  error                               // why it is not served; owned by the goroutine that starts and supervises it
	reported string                              // the last failure reported
}

// duty is what this process has to do for a database.
type duty = int32

const (
	dutyServe  duty = iota
	dutyIdle        // other processes are to serve it
	dutyRemove      // they serve it: its projection is not needed here
	dutyEnded       // it is no longer supervised
)

// databases is all databases of a run.
type databases struct {
	all    []*hosted
	events func(Event)

	starts chan struct{} // limits concurrent starts
	lost   chan error    // receives the failure of the last sound database
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

// start starts all databases that this process has to serve, and returns when each is served
// or has failed.
func (d *databases) start(ctx context.Context) {
	var starting sync.WaitGroup
	for _, db := range d.all {
		if db.duty.Load() == dutyServe {
			starting.Go(func() { d.startOne(ctx, db) })
		} else {
			db.idle()
		}
	}
	starting.Wait()
}

// sound reports whether any database is served or idle by plan.
func (d *databases) sound() bool {
	return slices.ContainsFunc(d.all, func(db *hosted) bool { return db.sound.Load() })
}

// setDuty starts or stops serving the database.
func (db *hosted) setDuty(to duty) {
	if db.duty.Swap(to) == to {
		return
	}
	select {
	case db.changed <- struct{}{}:
	default:
	}
}

// idle reports that the database is not served by plan, and removes its projection if that
// is the duty.
func (db *hosted) idle() {
	if db.duty.Load() == dutyRemove {
		if err := os.RemoveAll(db.options.Dir); err != nil {
			db.options.Logger.Warn("the projection of a copy that has ended stays: remove it while lapse is down", "dir", db.options.Dir, "err", err)
		}
	}
	db.failure, db.reported = nil, ""
	db.sound.Store(true)
	db.options.Monitor.Idle()
}

// startOne starts a database, unless its streams are damaged. A start that ctx ends is no
// failure.
func (d *databases) startOne(ctx context.Context, db *hosted) (started bool) {
	if db.damage != nil {
		d.failed(db, db.damage)
		return false
	}
	d.starts <- struct{}{}
	p, err := processor.Start(ctx, db.connections, db.options)
	<-d.starts
	if err == nil {
		db.failure = nil
		db.sound.Store(true)
		db.running.Store(p)
	} else if ctx.Err() == nil {
		d.failed(db, err)
	}
	return err == nil
}

// failed records a failure. It reports it unless it was the last one reported or the
// database is the only one, whose failure Run returns.
func (d *databases) failed(db *hosted, err error) {
	db.failure = err
	db.options.Monitor.Listener()(observe.Failed{Err: err})
	if text := schema.Describe(err); len(d.all) > 1 && text != db.reported {
		db.reported = text
		d.events(NotServed{db.notServed(err)})
	}
	if db.sound.Swap(false) && !d.sound() {
		select {
		case d.lost <- err:
		default: // two have failed at once
		}
	}
}

func (db *hosted) stop(p *processor.Processor) {
	if err := p.Stop(); err != nil {
		db.options.Logger.Warn("the processor did not stop cleanly", "err", err)
	}
}

func (db *hosted) notServed(err error) error {
	return fmt.Errorf("database %s is not served: %w", db.name, err)
}

// supervise serves the databases that have started, and starts others again, until stop is
// called, once. stop returns the errors of the databases that did not stop cleanly or are
// not served.
func (d *databases) supervise() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	errs := make([]error, len(d.all))
	var supervising sync.WaitGroup
	for i, db := range d.all {
		supervising.Go(func() {
			errs[i] = d.superviseOne(ctx, db)
			db.duty.Store(dutyEnded)
		})
	}
	return func() error {
		cancel()
		supervising.Wait()
		return d.joined(errs)
	}
}

// joined returns one error of the errors of all databases.
func (d *databases) joined(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	var all []string
	for i, err := range errs {
		if err != nil {
			all = append(all, schema.Describe(d.all[i].notServed(err)))
		}
	}
	if all == nil {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}

// superviseOne does what the duty of a database says until ctx ends. It returns the error of
// the stop, or why the database is not served.
func (d *databases) superviseOne(ctx context.Context, db *hosted) error {
	pause := leastPause
	for {
		if p := db.running.Load(); p != nil {
			began := time.Now()
			select {
			case <-ctx.Done():
				return p.Stop()
			case <-db.changed:
				if db.duty.Load() != dutyServe {
					db.running.Store(nil)
					db.stop(p)
					db.idle()
				}
			case err := <-p.Failed():
				d.repair(ctx, db, p, err)
			}
			if time.Since(began) > mostPause {
				pause = leastPause
			}
			continue
		}
		var again <-chan time.Time
		switch {
		case db.damage != nil || len(d.all) == 1 && db.failure != nil:
			<-ctx.Done()
			return db.failure
		case db.failure != nil:
			again = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return db.failure
		case <-db.changed:
		case <-again:
			pause = min(2*pause, mostPause)
		}
		failed := db.failure != nil
		if db.duty.Load() != dutyServe {
			db.idle()
		} else if d.startOne(ctx, db) && failed {
			db.reported = ""
			d.events(ServedAgain{db.name})
		}
	}
}

// repair stops the processor of a database that has failed. It starts another one if that
// helps at once: a start begins with a snapshot where the log was trimmed, and folds the log
// again where the projection is damaged.
func (d *databases) repair(ctx context.Context, db *hosted, p *processor.Processor, err error) {
	db.running.Store(nil)
	again := errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, processor.ErrDamaged)
	if !again {
		d.failed(db, err)
	}
	db.stop(p)
	if again {
		d.startOne(ctx, db)
	}
}

// served returns the databases with their roles.
func (d *databases) served() (all []Served) {
	for _, db := range d.all {
		served := Served{Name: db.name}
		if p := db.running.Load(); p != nil {
			served.Role = p.Role()
		} else if db.duty.Load() != dutyServe {
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
	for _, db := range d.all {
		if db.duty.Load() != dutyEnded {
			all = append(all, fmt.Sprintf("%s (database %s)", db.options.Monitor.Doing(), db.name))
		}
	}
	return strings.Join(all, ", ")
}

// each calls do with every database that is served.
func (d *databases) each(do func(*processor.Processor)) {
	for _, db := range d.all {
		if p := db.running.Load(); p != nil {
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
