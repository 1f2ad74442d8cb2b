package projections

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapsedb/lapse/schema"
)

// BenchmarkTally counts very many entries of an expiry order in buckets of an hour: one
// day of a month, where the later entries need not be read; all entries, the first half
// overdue; and all entries within the day.
func BenchmarkTally(b *testing.B) {
	const hour, start = 3600, 1_800_000_000
	documents := 10_000_000
	if testing.Short() {
		documents = 100_000
	}
	s, err := Open(b.TempDir(), Options{})
	must(b, err)
	defer s.Close()
	fill := func(name string, incarnation uint64, seconds int64) {
		if err := s.Fold([]Fact{{Event: &schema.Event{Seq: incarnation, Type: schema.CollectionCreated, Collection: schema.CollectionName(name), Body: []byte(`{"defaultTtl":60}`)}}}); err != nil {
			b.Fatal(err)
		}
		batch := s.db.NewBatch()
		for i := range documents {
			second := start + int64(i)*seconds/int64(documents)
			m := Meta{Version: schema.Version(i), TTL: schema.Inherit, Size: 200, Sum: uint64(i) * 0x9e3779b97f4a7c15}
			id := schema.DocumentID(fmt.Sprintf("order-%09d", i*7919%documents))
			_ = batch.Set(expiryKey(nil, Queue{incarnation, ByTimestamp}, second, id), appendEntryValue(nil, m, nil), nil)
			if batch.Len() > 1<<20 || i == documents-1 {
				must(b, batch.Commit(pebble.NoSync))
				batch = s.db.NewBatch()
			}
		}
		s.stats[incarnation] = stats{documents: int64(documents), inherited: int64(documents)}
	}
	fill("day", 1, 24*hour)
	fill("month", 2, 30*24*hour)
	must(b, s.db.Flush())
	for _, test := range []struct {
		name, collection string
		from             int64 // of the first bucket
	}{
		{"a-day-of-a-month", "month", start},
		{"half-overdue", "day", start + 12*hour},
		{"all-in-the-day", "day", start},
	} {
		b.Run(test.name, func(b *testing.B) {
			ends := []int64{test.from}
			for i := range int64(24) {
				ends = append(ends, test.from+(i+1)*hour)
			}
			scanned := 0
			for b.Loop() {
				v := view(b, s, schema.CollectionName(test.collection))
				scanned = 0
				counts, err := v.Tally(ByTimestamp, ends, func(n int) error { scanned += n; return nil })
				must(b, err)
				sum := int64(0)
				for _, n := range counts {
					sum += n
				}
				if sum != int64(documents) {
					b.Fatalf("%d are counted", sum)
				}
				must(b, v.Close())
			}
			b.ReportMetric(float64(scanned), "entries")
			b.ReportMetric(float64(scanned)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}
