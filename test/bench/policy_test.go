package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/versus"
)

// BenchmarkDefaultTTL changes the defaultTtl of a collection with very many documents
// that inherit it, and of one with few, in turns. A change moves all their deadlines and
// makes none due.
func BenchmarkDefaultTTL(b *testing.B) {
	benchmarkPolicy(b, "change of `defaultTtl` with %s documents that inherit it", `{"defaultTtl":%d}`, int(day/time.Second))
}

// BenchmarkWarnBefore does the same with warnBefore: a change moves all warnings and
// makes none due.
func BenchmarkWarnBefore(b *testing.B) {
	benchmarkPolicy(b, "change of `warnBefore` with %s documents", fmt.Sprintf(`{"defaultTtl":%d,"warnBefore":%%d}`, day/time.Second), 60)
}

// benchmarkPolicy changes a property again and again, from seconds up.
func benchmarkPolicy(b *testing.B, work, properties string, seconds int) {
	const few, changes = 100, 200
	many := versus.Size(1_000_000, 50_000)
	l := startLapse(b, processor.OS)
	l.create(b, "many", client.DefaultTTL(day))
	fill(b, l, "many", many)
	load(b, l.create(b, "few", client.DefaultTTL(day)), 0, few, versus.Document)
	nc := versus.Connect(b, l.URL())
	change := func(collection string) float64 {
		body := fmt.Appendf(nil, properties, seconds)
		began := time.Now()
		if _, err := request(nc, "lapse.main.api.collection.replace."+collection, body, read); err != nil {
			b.Fatal(err)
		}
		return versus.Milliseconds(time.Since(began))
	}
	var tookMany, tookFew, ratios []float64
	for b.Loop() {
		for range 1 + versus.Rounds {
			var these, those []float64
			for range changes {
				seconds++
				those = append(those, change("few"))
				these = append(these, change("many"))
			}
			tookMany, tookFew = append(tookMany, versus.Median(these)), append(tookFew, versus.Median(those))
			ratios = append(ratios, versus.Median(these)/versus.Median(those))
		}
	}
	row := versus.Row{Work: fmt.Sprintf(work, millions(many)), Peer: "the same with 100",
		Unit: " ms", Goal: versus.AtMost(1.5),
		Lapse: versus.Median(tookMany[1:]), Other: versus.Median(tookFew[1:]), Ratio: versus.Median(ratios[1:])}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(row.Lapse, "many-ms")
	b.ReportMetric(row.Other, "few-ms")
	b.ReportMetric(row.Ratio, "ratio")
	versus.Report(b, row)

	l.waiting(b, many+few)
	if n := l.events(b, "*", "DocumentExpired") + l.events(b, "*", "DocumentExpiring"); n > 0 {
		b.Fatalf("%d documents expired or were warned of", n)
	}
	properties, seconds = `{"defaultTtl":%d}`, -1
	change("many")
	l.waiting(b, few)
}

// waiting fails the benchmark unless this number of documents waits for a deadline and
// none is overdue.
func (l *lapse) waiting(b *testing.B, documents int) {
	b.Helper()
	status, err := l.client.Status(context.Background())
	check(b, err)
	if status.PendingExpiry != int64(documents) || status.Overdue > 0 {
		b.Fatalf("%d documents wait and %d are overdue, want %d and none", status.PendingExpiry, status.Overdue, documents)
	}
}
