package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/versus"
)

// BenchmarkGetBeside gets documents by request while 256 callers upsert others as
// fast as they can and more than 100,000 documents come due, against the same
// gets with nobody else there. p99-ratio is what the slowest of 100 takes then,
// to what it takes alone.
func BenchmarkGetBeside(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { benchmarkGetBeside(b, callers) })
	}
}

func benchmarkGetBeside(b *testing.B, callers int) {
	const (
		documents = 20_000
		expiring  = 20_000 // a round, due over its whole time
		upserting = 256
	)
	l := startLapse(b, processor.OS)
	load(b, l.create(b, "orders", client.DefaultTTL(time.Hour)), 0, documents, versus.Document)
	written := l.create(b, "written", client.DefaultTTL(time.Hour))
	short := l.create(b, "short", client.TTLPerDocument())
	ours := versus.Connections(b, l.URL(), connections)
	theirs := versus.Connections(b, l.URL(), connections)
	get := func() *versus.Callers {
		return &versus.Callers{N: callers, For: roundTime, Do: func(caller, n int) error {
			_, err := request(ours[caller%connections], subject("get", "orders", versus.Spread(n, documents)), nil, read)
			return err
		}}
	}
	var (
		loud, quiet = get(), get()
		round       = loud.Round(b)
		upserts     atomic.Int64
		expired     int64
		busy        time.Duration
		next        int
	)
	versus.Run(b, fmt.Sprintf("`get` beside upserts and expiry, %s", countCallers(callers)), func() versus.Rate {
		// What is going to expire meanwhile.
		due := time.Now().Unix() + 3
		for from := next; next < from+expiring; next += client.MaxBatch {
			load(b, short, next, next+client.MaxBatch, func(n int) []byte {
				return versus.DocumentWith(n, fmt.Sprintf(`"ttl":%d,`, max(due-time.Now().Unix(), 1)))
			})
		}
		time.Sleep(time.Until(time.Unix(due, 0)))
		pending := pendingExpiry(b, l)
		var callers sync.WaitGroup
		stop := make(chan struct{})
		began := time.Now()
		for caller := range upserting {
			callers.Go(func() {
				for n := caller; ; n += upserting {
					select {
					case <-stop:
						return
					default:
					}
					m, err := theirs[caller%connections].Request(subject("upsert", written.Name(), n%documents), versus.Document(n%documents), timeout)
					if err != nil {
						b.Error(m, err)
						return
					}
					upserts.Add(1)
				}
			})
		}
		rate := round()
		close(stop)
		callers.Wait()
		busy += time.Since(began)
		expired += pending - pendingExpiry(b, l)
		return rate
	}, versus.Peer{Name: "quiet", Round: quiet.Round(b)})
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(milliseconds(loud.P99()), "lapse-p99-ms")
	b.ReportMetric(milliseconds(quiet.P99()), "peer-p99-ms")
	b.ReportMetric(float64(loud.P99())/float64(quiet.P99()), "p99-ratio")
	b.ReportMetric(float64(upserts.Load())/busy.Seconds(), "upserts/s")
	b.ReportMetric(float64(expired)/busy.Seconds(), "expiries/s")
}

// pendingExpiry is how many documents have a deadline and no DocumentExpired.
func pendingExpiry(b *testing.B, l *lapse) int64 {
	b.Helper()
	status, err := l.client.Status(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	return status.PendingExpiry + status.Overdue
}
