package service

import (
	"context"
	"errors"
	"sync"

	"github.com/lapsedb/lapse/processor/machine"
)

// shared does for many who ask at a time, with the same key, what is the same
// for all of them: once, and begun after each of them asked, so that nobody gets
// an answer older than the question. The zero value is ready.
type shared[K comparable, V any] struct {
	mu     sync.Mutex
	queues map[K]*sharing[V]
}

// sharing is what is under way for one key.
type sharing[V any] struct {
	users   int           // who hold it
	working chan struct{} // holds something while somebody does it
	next    *result[V]    // of the one that has not begun, nil if nobody waits
}

type result[V any] struct {
	done  chan struct{} // closed when there is one
	value V
	err   error
}

// do returns the result of work, or ctx's error to those who wait for somebody
// else's work.
func (s *shared[K, V]) do(ctx context.Context, key K, work func() (V, error)) (V, error) {
	s.mu.Lock()
	q := s.queues[key]
	if q == nil {
		if s.queues == nil {
			s.queues = make(map[K]*sharing[V])
		}
		q = &sharing[V]{working: make(chan struct{}, 1)}
		s.queues[key] = q
	}
	q.users++
	r, first := q.next, q.next == nil
	if first {
		r = &result[V]{done: make(chan struct{})}
		q.next = r
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if q.users--; q.users == 0 {
			delete(s.queues, key)
		}
	}()
	if !first {
		select {
		case <-r.done:
			if errors.Is(r.err, context.DeadlineExceeded) && ctx.Err() == nil {
				return s.do(ctx, key, work) // whoever did it had less time
			}
			return r.value, r.err
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		}
	}
	q.working <- struct{}{}
	defer func() { <-q.working }()
	s.mu.Lock()
	q.next = nil
	s.mu.Unlock()
	r.err = machine.ErrPanic // unless it returns
	defer close(r.done)
	r.value, r.err = work()
	return r.value, r.err
}
