// Package versus compares two ways of doing something on a machine that is
// never quite still: in alternating rounds, so that what disturbs one disturbs
// the other, and by medians. It knows NATS and nothing of lapse.
package versus

import (
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"
)

// Rounds is how often each side of a comparison is measured.
const Rounds = 5

// A Side does one round of its work.
type Side func() Rate

// Rate is how fast a round was.
type Rate struct {
	PerSecond    float64 // operations
	PerCPUSecond float64 // the same by what the process used of all processors
}

// Clock measures a round, or the part of it that counts.
type Clock struct {
	began time.Time
	used  time.Duration
}

// Start starts a clock.
func Start() Clock { return Clock{time.Now(), cpu()} }

// Stop returns the rate of n operations since the clock's start.
func (c Clock) Stop(n int) Rate {
	return Rate{float64(n) / time.Since(c.began).Seconds(), float64(n) / (cpu() - c.used).Seconds()}
}

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Run measures lapse and its peer in rounds, the one first in even rounds and
// the other in odd ones, after a round each that does not count. It reports the
// medians of both as lapse-ops/s and peer-ops/s, and of what the one is to the
// other within a round as ratio; ratio-min is the worst round. cpu-ratio is the
// same by processor time: it leaves out what waits, and what others do on the
// machine; lapse-ops/cpu-s is one half of it.
//
// Both run with the garbage collector set as `lapse serve` sets it.
func Run(b *testing.B, lapse, peer Side) {
	b.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(300))
	var ours, theirs, oursCPU, ratios, cpuRatios []float64
	for b.Loop() {
		lapse()
		peer()
		for round := range Rounds {
			var l, p Rate
			if round%2 == 0 {
				l, p = lapse(), peer()
			} else {
				p, l = peer(), lapse()
			}
			ours, theirs = append(ours, l.PerSecond), append(theirs, p.PerSecond)
			oursCPU = append(oursCPU, l.PerCPUSecond)
			ratios = append(ratios, l.PerSecond/p.PerSecond)
			cpuRatios = append(cpuRatios, l.PerCPUSecond/p.PerCPUSecond)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(Median(ours), "lapse-ops/s")
	b.ReportMetric(Median(theirs), "peer-ops/s")
	b.ReportMetric(Median(ratios), "ratio")
	b.ReportMetric(slices.Min(ratios), "ratio-min")
	b.ReportMetric(Median(cpuRatios), "cpu-ratio")
	b.ReportMetric(Median(oursCPU), "lapse-ops/cpu-s")
}

// Alone measures what has no peer: a round that does not count, then Rounds. It
// reports the medians as unit/s and, by processor time, unit/cpu-s.
func Alone(b *testing.B, unit string, side Side) {
	b.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(300))
	var rates, cpuRates []float64
	for b.Loop() {
		side()
		for range Rounds {
			rate := side()
			rates, cpuRates = append(rates, rate.PerSecond), append(cpuRates, rate.PerCPUSecond)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(Median(rates), unit+"/s")
	b.ReportMetric(Median(cpuRates), unit+"/cpu-s")
}

// Median returns the middle one of values, which are not empty.
func Median[T ~float64 | ~int64](values []T) T { return Quantile(values, 0.5) }

// Quantile returns the value that the part q of values, which are not empty,
// is not above.
func Quantile[T ~float64 | ~int64](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
