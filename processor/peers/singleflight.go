package peers

import (
	"context"
	"errors"
	"sync"

	"github.com/lapsedb/lapse/processor/machine"
)

// singleflight lets concurrent callers with the same key share one run of the same
// work. That run begins after each of them called, so no caller gets a result older
// than its call. The zero value is ready.
type singleflight[K comparable, V any] struct {
	mu      sync.Mutex
	flights map[K]*flight[V]
}

// flight has the runs of one key.
type flight[V any] struct {
	callers int
	working chan struct{} // holds a value during a run
	next    *result[V]    // of the run that has not begun, nil if nobody waits for one
}

// result is the result of one run.
type result[V any] struct {
	done  chan struct{} // closed when the run has ended
	value V
	err   error
}

// do returns the result of a run of work. The error may be that of ctx if another caller
// runs it.
func (s *singleflight[K, V]) do(ctx context.Context, key K, work func() (V, error)) (V, error) {
	s.mu.Lock()
	q := s.flights[key]
	if q == nil {
		if s.flights == nil {
			s.flights = make(map[K]*flight[V])
		}
		q = &flight[V]{working: make(chan struct{}, 1)}
		s.flights[key] = q
	}
	q.callers++
	r, first := q.next, q.next == nil
	if first {
		r = &result[V]{done: make(chan struct{})}
		q.next = r
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if q.callers--; q.callers == 0 {
			delete(s.flights, key)
		}
	}()
	if !first {
		select {
		case <-r.done:
			ended := errors.Is(r.err, context.DeadlineExceeded) || errors.Is(r.err, context.Canceled)
			if ended && ctx.Err() == nil {
				return s.do(ctx, key, work) // the caller that ran it had less time
			}
			return r.value, r.err
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		}
	}
	select {
	case q.working <- struct{}{}:
		defer func() { <-q.working }()
	case <-ctx.Done():
		work = func() (none V, err error) { return none, ctx.Err() }
	}
	s.mu.Lock()
	q.next = nil
	s.mu.Unlock()
	r.err = machine.ErrPanic // if work panics
	defer close(r.done)
	r.value, r.err = work()
	return r.value, r.err
}
