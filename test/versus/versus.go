// Package versus compares two ways of doing something on a machine that is
// never quite still: in alternating rounds, so that what disturbs one disturbs
// the other, and by medians. It knows NATS and nothing of lapse.
package versus

import (
	"os"
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

// Quick tells whether benchmarks are to be short: `make bench-quick` compares
// what they give with what short ones gave before.
var Quick = os.Getenv(QuickEnv) != ""

// QuickEnv is set for short benchmarks.
const QuickEnv = "LAPSE_BENCH_QUICK"

// Size returns how much of something a benchmark is to do: quick where it is to
// be short.
func Size[T any](full, quick T) T {
	if Quick {
		return quick
	}
	return full
}

// Rounds is how often each side of a comparison is measured.
var Rounds = Size(5, 3)

// A Side does one round of its work.
type Side func() Rate

// Rate is how fast a round was.
type Rate struct {
	PerSecond    float64 // operations
	PerCPUSecond float64 // the same by what the processes used of all processors
}

// Clock measures a round, or the part of it that counts.
type Clock struct {
	began     time.Time
	used      time.Duration
	processes []int
}

// Start starts a clock. Processor time is that of this process and of the
// processes given, whose children do not count.
func Start(processes ...int) Clock { return Clock{time.Now(), cpu(processes), processes} }

// Stop returns the rate of n operations since the clock's start.
func (c Clock) Stop(n int) Rate {
	took := time.Since(c.began)
	return Rate{float64(n) / took.Seconds(), float64(n) / (cpu(c.processes) - c.used).Seconds()}
}

// Peer is what lapse is compared with.
type Peer struct {
	Name  string // as the table has it
	Goal  Goal
	Round Side
}

// Run measures lapse and its peers in rounds, each time beginning with another
// of them, after a round each that does not count. A row of the table for each
// peer says what the medians of both are and what the one is to the other, by
// the median of rounds. It reports the same as metrics, ratio-min being the
// worst round, and cpu-ratio the ratio by processor time: that leaves out what
// waits, and what others do on the machine.
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

// ReportRates reports the medians of rates as unit/s and, by processor time,
// unit/cpu-s, with suffix behind.
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

// Alternate lets sides work for so many rounds, each time beginning with another
// of them, and returns the rates of each. With warm, a round each that is not
// among them goes before.
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

// ReportP99 adds a row that says how long the slowest of 100 operations of lapse
// take, beside something else, to what they take when it is quiet, given those
// of each round. It reports the same as metrics.
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

// Milliseconds is d as metrics and rows have it.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Alone measures what has no peer: a round that does not count, then Rounds. It
// reports the medians as unit/s and, by processor time, unit/cpu-s. The goal is
// one of that rate.
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

// Median returns the middle one of values, which are not empty.
func Median[T ~float64 | ~int64](values []T) T { return Quantile(values, 0.5) }

// Quantile returns the value that the part q of values, which are not empty,
// is not above.
func Quantile[T ~float64 | ~int64](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
