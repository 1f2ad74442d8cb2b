package bench

import (
	"testing"

	"github.com/lapsedb/lapse/test/versus"
)

// BenchmarkQueryIngest stores orders in a collection with three included paths,
// against one with none, in batches that keep the writer busy. Every second order is
// new; the others replace one that had different indexed values.
func BenchmarkQueryIngest(b *testing.B) {
	indexed := startOrders(b, "/customer", "/status", "/total")
	plain := startOrders(b)
	versus.Run(b, "upserts in batches, three included paths", ingest(b, indexed), versus.Peer{Name: "no included paths", Round: ingest(b, plain)})
}

func ingest(b *testing.B, l *loaded) versus.Side {
	const batch, callers = 100, 16
	all, _ := sizes()
	batches := versus.Size(500, 100)
	if testing.Short() {
		batches = 50
	}
	written := 0
	return func() versus.Rate {
		bodies := make([][]byte, batches) // made before the clock starts
		for i := range bodies {
			var body batchBody
			for range batch {
				n := written / 2
				if written%2 == 1 {
					n = versus.Spread(written, n+1)
				}
				body.upsert(all, n, written)
				written++
			}
			bodies[i] = body.end()
		}
		clock := versus.Start(l.PID())
		err := l.write(callers, batches, func(i int) ([]byte, int) { return bodies[i], batch })
		rate := clock.Stop(batches * batch)
		if err != nil {
			b.Fatal(err)
		}
		return rate
	}
}
