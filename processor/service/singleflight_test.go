package service

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSingleflight: the work runs once for all callers before it begins, and again for
// later ones.
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
