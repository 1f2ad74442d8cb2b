package versus

import (
	"slices"
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
	// Until ends a round before that, if it is not nil and returns true.
	Until func() bool
	// Process is the one that serves them, 0 if it is this one.
	Process int
	// Do does operation n, counted over all callers and rounds, as the given
	// caller.
	Do func(caller, n int) error

	// Each is how many things one operation is; 0 is one.
	Each int

	done atomic.Int64
	p99  []time.Duration // of each round
}

// Round is a Side of Run: it lets all callers work and returns the rate. An
// operation that fails ends the benchmark.
func (c *Callers) Round(b *testing.B) Side {
	return func() Rate {
		var (
			callers  sync.WaitGroup
			failed   atomic.Pointer[error]
			before   = c.done.Load()
			deadline = time.Now().Add(c.For)
			clock    = Start(c.processes()...)
			took     = make([][]time.Duration, c.N)
		)
		for caller := range c.N {
			callers.Go(func() {
				for now := time.Now(); now.Before(deadline) && failed.Load() == nil && (c.Until == nil || !c.Until()); {
					if err := c.Do(caller, int(c.done.Add(1)-1)); err != nil {
						failed.Store(&err)
						return
					}
					began := now
					now = time.Now()
					took[caller] = append(took[caller], now.Sub(began))
				}
			})
		}
		callers.Wait()
		rate := clock.Stop(int(c.done.Load()-before) * max(c.Each, 1))
		if err := failed.Load(); err != nil {
			b.Fatal(*err)
		}
		c.p99 = append(c.p99, Quantile(slices.Concat(took...), 0.99))
		return rate
	}
}

// P99 returns what 99 of 100 operations took at most, as the median over the
// rounds, of which the first one of Run does not count.
func (c *Callers) P99() time.Duration { return Median(c.p99[1:]) }

// P99s returns the same of each round, also of the first.
func (c *Callers) P99s() []time.Duration { return c.p99 }

func (c *Callers) processes() []int {
	if c.Process == 0 {
		return nil
	}
	return []int{c.Process}
}
