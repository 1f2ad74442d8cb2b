package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/eventlog"
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
	damage      error // damaged streams, which prevent its start

	running atomic.Pointer[processor.Processor] // nil while it is not served
	stopped atomic.Bool
	failure error // why it is not served; owned by the goroutine that starts and keeps it
	told    string
}

// host is all databases of the process.
type host struct {
	all  []*hosted
	say  func(line string)    // a line for the operator
	fail func(problem string) // a failure for the operator

	starts  chan struct{} // limits concurrent starts
	serving atomic.Int64
	lost    chan error // receives the failure of the last database that was served
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

// start starts all databases, and returns when each is served or has failed.
func (h *host) start(ctx context.Context) {
	var starting sync.WaitGroup
	for _, one := range h.all {
		starting.Go(func() { h.startOne(ctx, one) })
	}
	starting.Wait()
}

func (h *host) startOne(ctx context.Context, one *hosted) (started bool) {
	if one.damage != nil {
		h.failed(one, one.damage)
		return false
	}
	h.starts <- struct{}{}
	p, err := processor.Start(ctx, one.connections, one.options)
	<-h.starts
	if err == nil {
		one.failure = nil
		h.serving.Add(1)
		one.running.Store(p)
	} else if ctx.Err() == nil {
		h.failed(one, err)
	}
	return err == nil
}

// failed records a failure. It prints it unless it was the last one printed or the
// database is the only one, whose failure the end of the command prints.
func (h *host) failed(one *hosted, err error) {
	one.failure = err
	one.options.Monitor.Listener()(observe.Failed{Err: err})
	if text := sentence(err); len(h.all) > 1 && text != one.told {
		one.told = text
		h.fail(one.notServed(err))
	}
}

// gone counts a database that is no longer served because of err.
func (h *host) gone(err error) {
	if h.serving.Add(-1) == 0 {
		h.lost <- err
	}
}

func (one *hosted) stop(p *processor.Processor) {
	if err := p.Stop(); err != nil {
		one.options.Logger.Warn("the processor did not stop cleanly", "err", err)
	}
}

func (one *hosted) notServed(err error) string {
	return fmt.Sprintf("database %s is not served: %s", one.name, sentence(err))
}

// keep serves the databases that have started, and starts others again, until ctx ends.
// It returns the errors of the databases that did not stop cleanly or are not served.
func (h *host) keep(ctx context.Context) error {
	errs := make([]error, len(h.all))
	var keeping sync.WaitGroup
	for i, one := range h.all {
		keeping.Go(func() {
			errs[i] = h.keepOne(ctx, one)
			one.stopped.Store(true)
		})
	}
	keeping.Wait()
	if len(errs) == 1 {
		return errs[0]
	}
	var left []string
	for i, err := range errs {
		if err != nil {
			left = append(left, h.all[i].notServed(err))
		}
	}
	if left == nil {
		return nil
	}
	return errors.New(strings.Join(left, "; "))
}

func (h *host) keepOne(ctx context.Context, one *hosted) error {
	pause := leastPause
	for {
		if p := one.running.Load(); p != nil {
			began := time.Now()
			select {
			case <-ctx.Done():
				return p.Stop()
			case err := <-p.Failed():
				one.running.Store(nil)
				if errors.Is(err, eventlog.ErrTrimmed) {
					one.stop(p)
					if h.startOne(ctx, one) { // begins with a snapshot
						h.serving.Add(-1) // startOne has counted the database again
						continue
					}
					h.gone(one.failure)
				} else {
					h.failed(one, err)
					h.gone(err)
					one.stop(p)
				}
			}
			if time.Since(began) > mostPause {
				pause = leastPause
			}
		}
		if one.damage != nil || len(h.all) == 1 {
			<-ctx.Done()
			return one.failure
		}
		select {
		case <-ctx.Done():
			return one.failure
		case <-time.After(pause):
		}
		if h.startOne(ctx, one) {
			one.told = ""
			h.say(fmt.Sprintf("database %s is served again", one.name))
		}
		pause = min(2*pause, mostPause)
	}
}

// doing describes the activity of the databases that have not stopped.
func (h *host) doing() string {
	if len(h.all) == 1 {
		return h.all[0].options.Monitor.Doing()
	}
	var all []string
	for _, one := range h.all {
		if !one.stopped.Load() {
			all = append(all, fmt.Sprintf("%s (database %s)", one.options.Monitor.Doing(), one.name))
		}
	}
	return strings.Join(all, ", ")
}

// each calls do with every database that is served.
func (h *host) each(do func(*processor.Processor)) {
	for _, one := range h.all {
		if p := one.running.Load(); p != nil {
			do(p)
		}
	}
}

// sum adds up a counter. It may fall when a database fails.
func (h *host) sum(counter func(*processor.Processor) uint64) func() uint64 {
	return func() (sum uint64) {
		h.each(func(p *processor.Processor) { sum += counter(p) })
		return sum
	}
}
