package service

import (
	"slices"
	"sync"
)

// fairQueue is a queue with a line for each client. Takers get the first item of each line
// in turn, so an item waits for at most one item of each other client, however many those
// have queued. Items of one client stay in order.
//
// The last idle taker serves only clients with no item being served, so one client cannot
// occupy all takers.
//
//	places 6, full:   a: 1 2 3 4   b: 1   c: 1        turns: a b c
//	b puts 2          a loses 4, whose request is refused with 429
//
// Costs: taking an item shifts turns, which has an entry for each waiting client; a put
// into a full queue searches it.
type fairQueue[T any] struct {
	places int // capacity: items of all clients that may wait

	mu      sync.Mutex
	ready   sync.Cond
	clients map[string]*line[T] // those with items, waiting or being served
	turns   []*line[T]          // those with items waiting, the next one first
	waiting int                 // items
	idle    int                 // takers
	closed  bool
}

// line is the items of one client.
type line[T any] struct {
	client string
	items  []T // that wait
	served int // items that takers have
}

func newFairQueue[T any](places int) *fairQueue[T] {
	f := &fairQueue[T]{places: places, clients: make(map[string]*line[T])}
	f.ready.L = &f.mu
	return f
}

// put adds an item of a client. If the queue is full, the client with the most waiting
// items loses its newest to a client with fewer. put returns the refused item, with ok
// false, if any.
func (f *fairQueue[T]) put(client string, item T) (refused T, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.clients[client]
	if l == nil {
		l = &line[T]{client: client}
	}
	ok = true
	if f.waiting >= f.places {
		loser := f.longest(len(l.items))
		if loser == nil {
			return item, false
		}
		last := len(loser.items) - 1
		refused, ok = loser.items[last], false
		loser.items = slices.Delete(loser.items, last, last+1)
		f.waiting--
	}
	f.clients[client] = l
	if len(l.items) == 0 {
		f.turns = append(f.turns, l)
	}
	l.items = append(l.items, item)
	f.waiting++
	if f.next() >= 0 {
		f.ready.Signal()
	}
	return refused, ok
}

// longest returns the longest line if it is at least two items longer than a client's
// own, else nil. A client with an average share or more gets nil without a search, so
// that a flood does not pay for one.
func (f *fairQueue[T]) longest(own int) *line[T] {
	if own*len(f.turns) >= f.waiting {
		return nil
	}
	l := slices.MaxFunc(f.turns, func(a, b *line[T]) int { return len(a.items) - len(b.items) })
	if len(l.items) < own+2 {
		return nil
	}
	return l
}

// next returns the position in turns of the next line, -1 for none. It skips lines with
// items being served, of which there are no more than takers.
func (f *fairQueue[T]) next() int {
	if f.idle == 0 {
		return -1
	}
	return slices.IndexFunc(f.turns, func(l *line[T]) bool { return f.idle > 1 || l.served == 0 })
}

// serve calls do with one item after another until the queue is closed.
func (f *fairQueue[T]) serve(do func(T)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle++
	defer func() { f.idle-- }()
	for {
		at := f.next()
		for ; at < 0 && !f.closed; at = f.next() {
			f.ready.Wait()
		}
		if f.closed {
			return
		}
		f.serveOne(at, do)
	}
}

// serveOne serves the first item of the line at a position of turns. The lock is held on
// entry and on return, also after a panic of do, and not while do runs.
func (f *fairQueue[T]) serveOne(at int, do func(T)) {
	l := f.turns[at]
	item := l.items[0]
	clear(l.items[:1])
	l.items = l.items[1:]
	f.turns = slices.Delete(f.turns, at, at+1)
	if len(l.items) > 0 {
		f.turns = append(f.turns, l)
	}
	f.waiting--
	f.idle--
	l.served++
	if f.next() >= 0 {
		f.ready.Signal()
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.idle++
		l.served--
		f.removeIdle(l)
	}()
	do(item)
}

// removeIdle removes a client that has no items.
func (f *fairQueue[T]) removeIdle(l *line[T]) {
	if len(l.items) == 0 && l.served == 0 {
		delete(f.clients, l.client)
	}
}

// drop removes and returns the waiting items that match.
func (f *fairQueue[T]) drop(match func(T) bool) (dropped []T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turns = slices.DeleteFunc(f.turns, func(l *line[T]) bool {
		l.items = slices.DeleteFunc(l.items, func(item T) bool {
			out := match(item)
			if out {
				dropped = append(dropped, item)
			}
			return out
		})
		f.removeIdle(l)
		return len(l.items) == 0
	})
	f.waiting -= len(dropped)
	return dropped
}

// close ends serve after the items being served. Waiting items stay.
func (f *fairQueue[T]) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.ready.Broadcast()
}

// len returns the number of waiting items.
func (f *fairQueue[T]) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}
