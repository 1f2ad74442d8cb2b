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

// Round is a Side of Run: it lets all callers work and returns operations per
// second. An operation that fails ends the benchmark.
func (c *Callers) Round(b *testing.B) Side {
	return func() float64 {
		var (
			callers  sync.WaitGroup
			failed   atomic.Pointer[error]
			before   = c.done.Load()
			start    = time.Now()
			deadline = start.Add(c.For)
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
		if err := failed.Load(); err != nil {
			b.Fatal(*err)
		}
		return float64(c.done.Load()-before) / time.Since(start).Seconds()
	}
}
