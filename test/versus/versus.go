// Package versus compares two implementations on a machine that is never quite idle: in
// alternating rounds, so that a disturbance hits both, and by medians. It knows NATS and
// nothing of lapse.
package versus

import (
	"os"
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

// Quick reports whether benchmarks are short: `make bench-quick` compares their results
// with those of earlier short ones.
var Quick = os.Getenv(QuickEnv) != ""

// QuickEnv is set for short benchmarks.
const QuickEnv = "BENCH_QUICK"

// Size returns the amount of work for a benchmark: quick if Quick is set, else full.
func Size[T any](full, quick T) T {
	if Quick {
		return quick
	}
	return full
}

// Rounds is the number of measured rounds for each side of a comparison.
var Rounds = Size(5, 3)

// A Side does one round of its work.
type Side func() Rate

// Rate is the speed of a round.
type Rate struct {
	PerSecond    float64 // operations
	PerCPUSecond float64 // operations per second of processor time of the processes
}

// Clock measures a round, or the part of it that counts.
type Clock struct {
	began     time.Time
	used      time.Duration
	processes []int
}

// Start starts a clock. It counts the processor time of this process and of the given
// ones, without their children.
func Start(processes ...int) Clock { return Clock{time.Now(), cpu(processes), processes} }

// Stop returns the rate of n operations since the clock's start.
func (c Clock) Stop(n int) Rate {
	took := time.Since(c.began)
	return Rate{float64(n) / took.Seconds(), float64(n) / (cpu(c.processes) - c.used).Seconds()}
}

// Peer is an alternative to lapse in a comparison.
type Peer struct {
	Name  string // in the table
	Goal  Goal
	Round Side
}

// Run measures lapse and its peers in rounds, each beginning with another side, after one
// round each that does not count. For each peer it adds a row to the table: both medians,
// and the median ratio over the rounds. It reports the same as metrics: ratio-min is the
// worst round, cpu-ratio the ratio by processor time, which leaves out waiting and other
// load on the machine.
func Run(b *testing.B, work string, lapse Side, peers ...Peer) {
	b.Helper()
	sides := []Side{lapse}
	for _, p := range peers {
		sides = append(sides, p.Round)
	}
	rates := Alternate(b, Rounds, true, sides...)
	ReportRates(b, "lapse-ops", "", rates[0])
	for i, p := range peers {
		suffix := ""
		if i > 0 {
			suffix = "-" + p.Name
		}
		Compare(b, work, suffix, rates[0], p, rates[i+1])
	}
}

// ReportRates reports the medians of rates as unit/s and, by processor time, unit/cpu-s,
// each followed by suffix.
func ReportRates(b *testing.B, unit, suffix string, rates []Rate) {
	b.Helper()
	b.ReportMetric(median(rates, perSecond), metric(unit+"/s"+suffix))
	b.ReportMetric(median(rates, perCPUSecond), metric(unit+"/cpu-s"+suffix))
}

// Compare adds the row of a peer, and metrics whose names end with suffix, as
// Run does, given the rates of both sides in each round.
func Compare(b *testing.B, work, suffix string, lapse []Rate, p Peer, theirs []Rate) {
	b.Helper()
	ratios, cpuRatios := ratios(lapse, theirs, perSecond), ratios(lapse, theirs, perCPUSecond)
	b.ReportMetric(median(theirs, perSecond), metric("peer-ops/s"+suffix))
	b.ReportMetric(Median(ratios), metric("ratio"+suffix))
	b.ReportMetric(slices.Min(ratios), metric("ratio-min"+suffix))
	b.ReportMetric(Median(cpuRatios), metric("cpu-ratio"+suffix))
	Report(b, Row{Work: work, Peer: p.Name, Unit: "/s", Goal: p.Goal,
		Lapse: median(lapse, perSecond), Other: median(theirs, perSecond), Ratio: Median(ratios),
		LapseCPU: 1e6 / median(lapse, perCPUSecond), OtherCPU: 1e6 / median(theirs, perCPUSecond)})
}

// Alternate runs sides for that many rounds, each beginning with another side, and
// returns the rates of each side. With warm, a round of each goes before, which does not
// count.
//
// This process runs with the garbage collector set as `lapse serve` sets it.
func Alternate(b *testing.B, rounds int, warm bool, sides ...Side) [][]Rate {
	b.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(300))
	rates := make([][]Rate, len(sides))
	for b.Loop() {
		if warm {
			for _, side := range sides {
				side()
			}
		}
		for round := range rounds {
			for i := range sides {
				i = (i + round) % len(sides)
				rates[i] = append(rates[i], sides[i]())
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	return rates
}

func perSecond(r Rate) float64    { return r.PerSecond }
func perCPUSecond(r Rate) float64 { return r.PerCPUSecond }

func median(rates []Rate, of func(Rate) float64) float64 {
	values := make([]float64, len(rates))
	for i, r := range rates {
		values[i] = of(r)
	}
	return Median(values)
}

func ratios(ours, theirs []Rate, of func(Rate) float64) []float64 {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = of(ours[i]) / of(theirs[i])
	}
	return ratios
}

// ReportP99 adds a row that compares the p99 latency of lapse beside other work with that
// when it is quiet, given those of each round. It reports the same as metrics.
func ReportP99(b *testing.B, work string, goal Goal, beside, quiet []time.Duration) {
	b.Helper()
	quotients := make([]float64, len(beside))
	for i := range beside {
		quotients[i] = float64(beside[i]) / float64(quiet[i])
	}
	row := Row{Work: work, Peer: "lapse, quiet", Unit: " ms", Goal: goal,
		Lapse: Milliseconds(Median(beside)), Other: Milliseconds(Median(quiet)), Ratio: Median(quotients)}
	b.ReportMetric(row.Lapse, "lapse-p99-ms")
	b.ReportMetric(row.Other, "peer-p99-ms")
	b.ReportMetric(row.Ratio, "p99-ratio")
	Report(b, row)
}

// Milliseconds returns d in milliseconds, the unit of metrics and rows.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Alone measures a side without a peer: a round that does not count, then Rounds. It
// reports the medians as unit/s and, by processor time, unit/cpu-s. The goal is for
// unit/s.
func Alone(b *testing.B, work, unit string, goal Goal, side Side) {
	b.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(300))
	var rates []Rate
	for b.Loop() {
		side()
		for range Rounds {
			rates = append(rates, side())
		}
	}
	b.ReportMetric(0, "ns/op")
	ReportRates(b, unit, "", rates)
	Report(b, Row{Work: work, Unit: " " + unit + "/s", Goal: goal, Lapse: median(rates, perSecond)})
}

// Median returns the median of values, which must not be empty.
func Median[T ~float64 | ~int64](values []T) T { return Quantile(values, 0.5) }

// Quantile returns the q-quantile of values, which must not be empty.
func Quantile[T ~float64 | ~int64](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
