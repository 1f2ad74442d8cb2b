// Package versus compares two ways of doing something on a machine that is
// never quite still: in alternating rounds, so that what disturbs one disturbs
// the other, and by medians. It knows NATS and nothing of lapse.
package versus

import (
	"slices"
	"testing"
)

// Rounds is how often each side of a comparison is measured.
const Rounds = 5

// A Side does one round of its work and returns operations per second.
type Side func() float64

// Run measures lapse and its peer in rounds, the one first in even rounds and
// the other in odd ones, after a round each that does not count. It reports the
// medians of both as lapse-ops/s and peer-ops/s, and of what the one is to the
// other within a round as ratio; ratio-min is the worst round.
func Run(b *testing.B, lapse, peer Side) {
	b.Helper()
	var ours, theirs, ratios []float64
	for b.Loop() {
		lapse()
		peer()
		for round := range Rounds {
			var l, p float64
			if round%2 == 0 {
				l, p = lapse(), peer()
			} else {
				p, l = peer(), lapse()
			}
			ours, theirs, ratios = append(ours, l), append(theirs, p), append(ratios, l/p)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(Median(ours), "lapse-ops/s")
	b.ReportMetric(Median(theirs), "peer-ops/s")
	b.ReportMetric(Median(ratios), "ratio")
	b.ReportMetric(slices.Min(ratios), "ratio-min")
}

// Median returns the middle one of values, which are not empty.
func Median[T float64 | int64](values []T) T { return Quantile(values, 0.5) }

// Quantile returns the value that the part q of values, which are not empty,
// is not above.
func Quantile[T float64 | int64](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
