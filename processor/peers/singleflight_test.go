package peers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSingleflight: all callers before a run begins share it, later ones share the next.
func TestSingleflight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			s     singleflight[string, int]
			runs  atomic.Int64
			asked sync.WaitGroup
		)
		work := func() (int, error) {
			n := int(runs.Add(1))
			time.Sleep(time.Second)
			return n, nil
		}
		ask := func(key string, want int) {
			asked.Go(func() {
				if n, err := s.do(t.Context(), key, work); n != want || err != nil {
					t.Errorf("%s: %d, %v, want %d", key, n, err, want)
				}
			})
		}
		ask("a", 1)
		synctest.Wait()
		for range 100 {
			ask("a", 2)
		}
		asked.Wait()
		ask("b", 3)
		asked.Wait()
		if len(s.flights) != 0 {
			t.Errorf("%d are left", len(s.flights))
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = s.do(t.Context(), "c", func() (int, error) { panic("on purpose") })
		}()
		if n, err := s.do(t.Context(), "c", func() (int, error) { return 4, nil }); n != 4 || err != nil {
			t.Errorf("after a panic: %d, %v", n, err)
		}
	})
}

// TestSingleflightGivesUp: a caller that waits for its turn gives up when its context ends,
// and those who would share its run start one of their own.
func TestSingleflightGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			s     singleflight[string, int]
			asked sync.WaitGroup
		)
		ask := func(ctx context.Context, result int, wait time.Duration, want error) {
			asked.Go(func() {
				began := time.Now()
				n, err := s.do(ctx, "a", func() (int, error) { time.Sleep(10 * time.Second); return result, nil })
				if took := time.Since(began); !errors.Is(err, want) || took != wait || err == nil && n != result {
					t.Errorf("%d: got %d, %v after %s; want %v after %s", result, n, err, took, want, wait)
				}
			})
			synctest.Wait()
		}
		ask(t.Context(), 1, 10*time.Second, nil) // runs
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ask(ctx, 2, time.Second, context.DeadlineExceeded) // would run next
		ask(t.Context(), 3, 20*time.Second, nil)           // would share that run
		asked.Wait()
		if len(s.flights) != 0 {
			t.Errorf("%d are left", len(s.flights))
		}
	})
}
