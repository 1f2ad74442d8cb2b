package versus

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Callers are goroutines that each do one operation at a time, like clients that wait
// for their replies.
type Callers struct {
	// N is the number of goroutines.
	N int
	// For is the duration of a round.
	For time.Duration
	// Until ends a round early, if it is not nil and returns true.
	Until func() bool
	// Process is the PID of the server, 0 if that is this process.
	Process int
	// Do does operation n, counted over all callers and rounds, as the given
	// caller.
	Do func(caller, n int) error

	// Pace is the operations a second that all callers begin together, 0 for as many as
	// they can.
	Pace int

	// Each is the number of things that one operation does; 0 means one.
	Each int

	done atomic.Int64
	p99  []time.Duration // of each round
}

// Round returns a Side for Run that lets all callers work and returns their rate. An
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
				next := time.Now().Add(c.interval() / time.Duration(c.N) * time.Duration(caller))
				for now := time.Now(); now.Before(deadline) && failed.Load() == nil && (c.Until == nil || !c.Until()); {
					if c.Pace > 0 {
						time.Sleep(time.Until(next))
						now = time.Now()
						next = next.Add(c.interval())
					}
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

// interval returns the time between two operations of a caller.
func (c *Callers) interval() time.Duration {
	if c.Pace == 0 {
		return 0
	}
	return time.Second * time.Duration(c.N) / time.Duration(c.Pace)
}

// P99 returns the p99 latency of an operation: the median over the rounds, without the
// first one of Run, which does not count.
func (c *Callers) P99() time.Duration { return Median(c.p99[1:]) }

// P99s returns the p99 latency of each round, including the first.
func (c *Callers) P99s() []time.Duration { return c.p99 }

func (c *Callers) processes() []int {
	if c.Process == 0 {
		return nil
	}
	return []int{c.Process}
}
