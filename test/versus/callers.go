package versus

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Callers are goroutines that each do one operation after the other, as
// clients do that wait for their replies.
type Callers struct {
	// N is how many there are.
	N int
	// For is how long a round takes.
	For time.Duration
	// Do does operation n, counted over all callers and rounds, as the given
	// caller.
	Do func(caller, n int) error

	done atomic.Int64
}

// Round is a Side of Run: it lets all callers work and returns the rate. An operation that fails ends the benchmark.
func (c *Callers) Round(b *testing.B) Side {
	return func() Rate {
		var (
			callers  sync.WaitGroup
			failed   atomic.Pointer[error]
			before   = c.done.Load()
			deadline = time.Now().Add(c.For)
			clock    = Start()
		)
		for caller := range c.N {
			callers.Go(func() {
				for time.Now().Before(deadline) && failed.Load() == nil {
					if err := c.Do(caller, int(c.done.Add(1)-1)); err != nil {
						failed.Store(&err)
						return
					}
				}
			})
		}
		callers.Wait()
		rate := clock.Stop(int(c.done.Load() - before))
		if err := failed.Load(); err != nil {
			b.Fatal(*err)
		}
		return rate
	}
}
