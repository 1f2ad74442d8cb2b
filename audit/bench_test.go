package audit

import (
	"fmt"
	"testing"

	"github.com/lapsedb/lapse/schema"
)

// BenchmarkAudit audits a log of 2,000 new documents a second, all different, which
// expire after 200 seconds.
func BenchmarkAudit(b *testing.B) {
	for range b.N {
		a, err := New(Options{})
		if err != nil {
			b.Fatal(err)
		}
		seq := uint64(0)
		event := func(e schema.Event) {
			seq++
			e.Seq, e.Collection = seq, "sessions"
			if err := a.Event(&e); err != nil {
				b.Fatal(err)
			}
		}
		event(schema.Event{Type: schema.CollectionCreated, Body: []byte(`{"defaultTtl":200,"previousImages":false}`)})
		const perSecond = 2000
		version := make(map[int]uint64)
		for second := range 300 {
			for i := range perSecond {
				n := second*perSecond + i
				name := func(n int) schema.DocumentID {
					return schema.DocumentID(fmt.Sprintf("doc-%x", uint32(n)*2654435761))
				}
				if n >= 200*perSecond {
					old := n - 200*perSecond
					event(schema.Event{Type: schema.DocumentExpired, Time: int64(second) * 1000, ID: name(old), Previous: schema.Version(version[old]),
						Deadline: schema.Deadline{At: int64(second), TTL: 200, Rule: schema.RuleCollection}})
					delete(version, old)
				}
				event(schema.Event{Type: schema.DocumentCreated, Time: int64(second) * 1000, ID: name(n), Body: fmt.Appendf(nil, `{"id":%q}`, name(n))})
				version[n] = seq
			}
		}
		if report, err := a.Finish(); err != nil || report.Count() > 0 {
			b.Fatal(report.Findings[:1], err)
		}
		b.ReportMetric(float64(seq)/b.Elapsed().Seconds()*float64(b.N), "events/s")
		if err := a.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
