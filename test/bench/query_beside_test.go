package bench

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/versus"
)

// BenchmarkQueryBeside gets and upserts orders by request during an endless load of
// queries that scan all of them, more at a time than there are workers, against the same
// without that load.
func BenchmarkQueryBeside(b *testing.B) {
	const callers = 64
	all := versus.Size[orders](50_000, 20_000)
	if testing.Short() {
		all = 5_000
	}
	l := loadOrders(b, all)
	theirs := versus.Connections(b, l.URL(), connections)
	b.Run("get", func(b *testing.B) {
		beside(b, "`get`, 64 callers, beside full scans", theirs, func() *versus.Callers {
			return &versus.Callers{N: callers, For: roundTime, Process: l.PID(), Do: func(caller, n int) error {
				_, err := request(l.conns[caller%connections], subject("get", ordersCollection, versus.Spread(n, int(all))), nil, read)
				return err
			}}
		})
	})
	b.Run("upsert", func(b *testing.B) {
		beside(b, "`upsert`, 64 callers, beside full scans", theirs, func() *versus.Callers {
			return &versus.Callers{N: callers, For: roundTime, Process: l.PID(), Do: func(caller, n int) error {
				doc, _ := all.append(nil, versus.Spread(n, int(all)), n%revisions)
				_, err := request(l.conns[caller%connections], subject("upsert", ordersCollection, versus.Spread(n, int(all))), doc, written)
				return err
			}}
		})
	})
}

// beside measures callers while scans run, as lapse, and without scans, as its peer.
func beside(b *testing.B, what string, conns []*nats.Conn, work func() *versus.Callers) {
	const scans = 24
	var (
		others      scanners
		loud, quiet = work(), work()
		round       = loud.Round(b)
		scanning    time.Duration
	)
	versus.Run(b, what, func() versus.Rate {
		began := time.Now()
		others.scan(conns, scans)
		rate := round()
		if err := others.stop(); err != nil {
			b.Fatal(err)
		}
		scanning += time.Since(began)
		return rate
	}, versus.Peer{Name: "without them", Round: quiet.Round(b)})
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(milliseconds(loud.P99()), "lapse-p99-ms")
	b.ReportMetric(milliseconds(quiet.P99()), "peer-p99-ms")
	if !versus.Quick { // its rounds are too short for a p99
		versus.Report(b, versus.Row{Work: what + ", p99", Peer: "without them", Unit: " ms",
			Lapse: milliseconds(loud.P99()), Other: milliseconds(quiet.P99()), Ratio: float64(loud.P99()) / float64(quiet.P99())})
	}
	b.ReportMetric(float64(others.ran.Load())/scanning.Seconds(), "scans/s")
	b.ReportMetric(float64(others.refused.Load())/scanning.Seconds(), "scans-refused/s")
}
