package bench

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

// BenchmarkSpread upserts into sixteen databases that four processes share, against one
// process that has all of them, by processor time: what the spreading costs.
func BenchmarkSpread(b *testing.B) {
	const databases, processes = 16, 4
	shared, alone := spreadOver(b, processes, databases), spreadOver(b, 1, databases)
	rates := versus.Alternate(b, versus.Rounds, true, shared, alone)
	var ratios, ours, theirs []float64
	for i := range rates[0] {
		ours, theirs = append(ours, rates[0][i].PerCPUSecond), append(theirs, rates[1][i].PerCPUSecond)
		ratios = append(ratios, ours[i]/theirs[i])
	}
	b.ReportMetric(versus.Median(ours), "lapse-ops/cpu-s")
	b.ReportMetric(versus.Median(theirs), "peer-ops/cpu-s")
	b.ReportMetric(versus.Median(ratios), "cpu-ratio")
	versus.Report(b, versus.Row{Work: "`upsert` into 16 databases by 64 callers, of 4 processes, per second of processor time", Peer: "lapse, 1 process", Unit: "/s",
		Goal: versus.AtLeast(0.8), Lapse: versus.Median(ours), Other: versus.Median(theirs), Ratio: versus.Median(ratios)})
}

// spreadOver starts processes that share databases, each with one copy, and returns a side
// that upserts into all of them.
func spreadOver(b *testing.B, processes, databases int) versus.Side {
	b.Helper()
	url := harness.StartNATS(b, harness.NATSOptions(b.TempDir())).ClientURL()
	var names []string
	for i := range databases {
		names = append(names, fmt.Sprint("db", i))
	}
	var pids []int
	for range processes {
		s := harness.ServeRemote(b, url, b.TempDir(), io.Discard, "--database", strings.Join(names, ","), "--copies", "1", "--durability", "os")
		pids = append(pids, s.PID())
	}
	var conns []*nats.Conn
	for _, name := range names {
		nc := versus.Connect(b, url)
		c, err := client.New(nc, client.WithDatabase(name))
		check(b, err)
		if _, err := c.CreateCollection(context.Background(), "orders", client.DefaultTTL(time.Hour)); err != nil {
			b.Fatal(err)
		}
		conns = append(conns, nc)
	}
	awaitSpread(b, conns, names, processes)
	const callers = 64
	return func() versus.Rate {
		clock, until := versus.Start(pids...), time.Now().Add(roundTime)
		var done [callers]int
		var calling sync.WaitGroup
		for caller := range callers {
			calling.Go(func() {
				db := caller % databases
				for ; time.Now().Before(until); done[caller]++ {
					n := versus.Spread(caller+done[caller]*callers, upserted)
					subject := strings.Replace(subject("upsert", "orders", n), "lapse.main.", "lapse."+names[db]+".", 1)
					if _, err := request(conns[db], subject, versus.Document(n), written); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		calling.Wait()
		sum := 0
		for _, n := range done {
			sum += n
		}
		return clock.Stop(sum)
	}
}

// awaitSpread waits until the processes write as many databases each.
func awaitSpread(b *testing.B, conns []*nats.Conn, names []string, processes int) {
	b.Helper()
	for deadline := time.Now().Add(4 * timeout); ; time.Sleep(100 * time.Millisecond) {
		writes := make(map[string]int)
		for i, nc := range conns {
			c, err := client.New(nc, client.WithDatabase(names[i]))
			check(b, err)
			status, err := c.Status(context.Background())
			if err != nil || status.Copies != 1 {
				continue
			}
			for _, p := range status.Processes {
				if p.Role == "writer" {
					writes[p.ID]++
				}
			}
		}
		most, all := 0, 0
		for _, n := range writes {
			most, all = max(most, n), all+n
		}
		if all == len(names) && most == len(names)/processes {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("the databases are not spread: %v", writes)
		}
	}
}
