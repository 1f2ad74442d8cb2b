package host_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lapsedb/lapse/host"
)

// BenchmarkClockDatabase opens and drops databases by 2 and by 16 clients; the
// goals are 30 and 60 ms for both.
func BenchmarkClockDatabase(b *testing.B) {
	for _, clients := range []int{2, 16} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			c := startClocks(b, host.Test{})
			var places atomic.Int64
			b.SetParallelism(max(1, clients/runtime.GOMAXPROCS(0)))
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				db := fmt.Sprint("t", places.Add(1))
				for pb.Next() {
					c.want("201", db+".test.open", "")
					c.want("204", db+".test.drop", "")
				}
			})
		})
	}
}

// BenchmarkClockMove moves a clock with nothing due; the goal is 3 ms.
func BenchmarkClockMove(b *testing.B) {
	c := startClocks(b, host.Test{})
	for b.Loop() {
		c.want("200", "main.test.advance", `{"by":1}`)
	}
}

// BenchmarkClockStorm expires 100,000 documents in one move: at one second, for which the goal
// is 2 s, and each at its own, 4 s; and three in ten years.
func BenchmarkClockStorm(b *testing.B) {
	for name, spread := range map[string]int{"at once": 0, "apart": 1} {
		b.Run(name, func(b *testing.B) {
			c := startClocks(b, host.Test{})
			c.want("201", "main.api.collection.create.c", `{"defaultTtl":-1}`)
			var took time.Duration
			for b.Loop() {
				const documents, batch = 100_000, 1000
				for first := 0; first < documents; first += batch {
					var operations []string
					for i := first; i < first+batch; i++ {
						operations = append(operations, fmt.Sprintf(`{"op":"upsert","id":"%d","body":{"ttl":%d}}`, i, 100_000+i*spread))
					}
					c.want("200", "main.api.batch.c", `{"operations":[`+strings.Join(operations, ",")+`]}`)
				}
				began := time.Now()
				code, reply := c.ask("main.test.advance", `{"by":"10d"}`)
				took += time.Since(began)
				if !strings.Contains(reply, `"events":100000`) {
					b.Fatal(code, reply)
				}
			}
			b.ReportMetric(took.Seconds()/float64(b.N), "s/move")
		})
	}
}
