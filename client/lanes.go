package client

import (
	"context"
	"sync"
)

// job is an event for a handler.
type job struct {
	d delivery
	e *Event
}

// lane has the events of a document that are not handled yet, but for the one under way.
type lane struct {
	jobs    []job
	failing bool // a try of the event under way has failed
}

// lanes hands events to their handler: those of a document one after the other, and those of
// several documents at the same time, each try in a slot. Between two tries an event has none,
// so a failing event delays only its own document.
type lanes struct {
	handle func(job, *lane)
	slots  chan struct{}
	space  chan struct{} // bounds the events, also of a source without a limit of its own
	single bool          // all events are in one lane, in the order of the log
	park   func(n int)   // n more events wait for a failing one, or for its next try

	busy, running sync.WaitGroup // events and lanes
	mu            sync.Mutex
	of            map[string]*lane // by document
}

func newLanes(workers int, handle func(job, *lane), src source) *lanes {
	l := &lanes{handle: handle, slots: make(chan struct{}, max(workers, 1)), space: make(chan struct{}, maxAckPending), single: workers == 0,
		park: func(int) {}, of: make(map[string]*lane)}
	if d, ok := src.(*durable); ok && !l.single {
		l.park = func(n int) { d.change(func() { d.window.parked += n }) }
	}
	return l
}

// add adds an event to its lane. It waits for space. An event without a document is handled
// alone.
func (l *lanes) add(ctx context.Context, j job) error {
	select {
	case l.space <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if j.e.ID == "" {
		l.busy.Wait()
		defer l.busy.Wait()
	}
	l.busy.Add(1)
	document := ""
	if !l.single {
		document = j.e.Collection + "/" + j.e.ID
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if own := l.of[document]; own != nil {
		own.jobs = append(own.jobs, j)
		if own.failing {
			l.park(1)
		}
		return nil
	}
	own := &lane{jobs: []job{j}}
	l.of[document] = own
	l.running.Go(func() {
		for l.next(document, own) {
		}
	})
	return nil
}

// next handles the next event of a lane; false at the end of the lane.
func (l *lanes) next(document string, own *lane) bool {
	l.mu.Lock()
	if len(own.jobs) == 0 {
		delete(l.of, document)
		l.mu.Unlock()
		return false
	}
	j := own.jobs[0]
	own.jobs = own.jobs[1:]
	l.mu.Unlock()
	l.handle(j, own)
	l.setFailing(own, false)
	<-l.space
	l.busy.Done()
	return true
}

// setFailing changes whether the events of a lane count as parked.
func (l *lanes) setFailing(own *lane, failing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own.failing == failing {
		return
	}
	own.failing = failing
	n := 1 + len(own.jobs)
	if !failing {
		n = -n
	}
	l.park(n)
}

// try calls f in a slot.
func (l *lanes) try(ctx context.Context, f func() error) error {
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
		return f()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
