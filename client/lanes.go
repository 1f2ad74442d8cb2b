package client

import (
	"context"
	"sync"
)

// How client.Handle works on several documents at a time. Each document with events has a
// lane and a goroutine, which ends with its last event. Tries need a slot, so that at most
// as many handlers run as there are workers. An event without a document, such as a
// CollectionReplaced, waits for all lanes and holds up all later events: what comes after
// it in the log is handled after it.
//
// Events that wait for a failing one are parked: they count no longer against what the
// source may have in flight, or one document that fails for hours would stop all others.
// What may wait in all is bounded by space.

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
// so a failing event delays only its own document. Without slots all events are in one lane.
type lanes struct {
	src    source
	handle func(job, *lane)
	slots  chan struct{}
	space  chan struct{} // bounds the events, also of a source without a limit of its own

	busy, running sync.WaitGroup // events and lanes
	mu            sync.Mutex
	of            map[string]*lane // by document
}

// newLanes returns lanes with so many workers; 0 for one lane.
func newLanes(workers int, src source, handle func(job, *lane)) *lanes {
	return &lanes{src: src, handle: handle, slots: make(chan struct{}, workers), space: make(chan struct{}, maxAckPending), of: make(map[string]*lane)}
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
	if cap(l.slots) > 0 {
		document = j.e.Collection + "/" + j.e.ID
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.of[document]
	if own == nil {
		own = new(lane)
		l.of[document] = own
		l.running.Go(func() { l.run(document, own, j) })
		return nil
	}
	own.jobs = append(own.jobs, j)
	if own.failing {
		l.park(1)
	}
	return nil
}

// run handles the events of a lane until it has none.
func (l *lanes) run(document string, own *lane, j job) {
	for {
		l.handle(j, own)
		l.setFailing(own, false)
		<-l.space
		l.busy.Done()
		l.mu.Lock()
		if len(own.jobs) == 0 {
			delete(l.of, document)
			l.mu.Unlock()
			return
		}
		j, own.jobs = own.jobs[0], own.jobs[1:]
		l.mu.Unlock()
	}
}

// setFailing changes whether the events of a lane are parked.
func (l *lanes) setFailing(own *lane, failing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := 1 + len(own.jobs); {
	case failing && !own.failing:
		l.park(n)
	case !failing && own.failing:
		l.park(-n)
	}
	own.failing = failing
}

// park has n more events wait for a failing one, or for its next try.
func (l *lanes) park(n int) {
	if d, ok := l.src.(*durable); ok {
		d.change(func() { d.window.parked += n })
	}
}

// try calls f in a slot.
func (l *lanes) try(ctx context.Context, f func() error) error {
	if cap(l.slots) == 0 {
		return f()
	}
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
		return f()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
