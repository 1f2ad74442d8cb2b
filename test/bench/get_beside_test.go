package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/versus"
)

// BenchmarkGetBeside gets documents by request while 256 callers upsert others as
// fast as they can and 20,000 documents expire, against the same gets with
// no other load. p99-ratio is the p99 under load divided by the p99 without.
// The upserts come from a process of their own, so that gets wait for lapse
// and not for other callers of their client.
func BenchmarkGetBeside(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { benchmarkGetBeside(b, callers) })
	}
}

// besideGoal is the limit of the p99 of gets relative to no load, by callers.
var besideGoal = map[int]versus.Goal{1: versus.AtMost(5), 64: versus.AtMost(3)}

const (
	besideDocuments = 20_000
	besideUpserting = 256
	besideExpiring  = 20_000 // when a round begins

	besideWritten = "written"
	// upserter is the role of the process that upserts.
	upserter = "upserter"
)

// upsertForever runs 256 callers, each of which upserts one document after the other.
func upsertForever(url string, ready func(string)) error {
	failed := make(chan error)
	for range connections {
		nc, err := nats.Connect(url)
		if err != nil {
			return err
		}
		for caller := range besideUpserting / connections {
			go func() {
				for n := caller; ; n += besideUpserting / connections {
					n := versus.Spread(n, besideDocuments)
					if _, err := request(nc, subject("upsert", besideWritten, n), versus.Document(n), written); err != nil {
						failed <- err
					}
				}
			}()
		}
	}
	ready(url)
	return <-failed
}

func benchmarkGetBeside(b *testing.B, callers int) {
	l := startLapse(b, processor.OS)
	load(b, l.create(b, "orders", client.DefaultTTL(time.Hour)), 0, besideDocuments, versus.Document)
	load(b, l.create(b, besideWritten, client.DefaultTTL(time.Hour)), 0, besideDocuments, versus.Document)
	l.create(b, "short", client.TTLPerDocument())
	conns := versus.Connections(b, l.URL(), connections)
	get := func() *versus.Callers {
		return &versus.Callers{N: callers, For: roundTime, Process: l.PID(), Do: func(caller, n int) error {
			_, err := request(conns[caller%connections], subject("get", "orders", versus.Spread(n, besideDocuments)), nil, read)
			return err
		}}
	}
	var (
		loud, quiet = get(), get()
		loudRound   = loud.Round(b)
		quietRound  = quiet.Round(b)
		busy        time.Duration
		upserted    int64
		expired     int64
	)
	status := func() client.Status {
		status, err := l.client.Status(b.Context())
		check(b, err)
		return status
	}
	versus.Alternate(b, versus.Size(5, 2), false, func() versus.Rate {
		due, ahead := time.Time{}, 2*time.Second
		for ok := false; !ok; ahead *= 2 {
			if ahead > timeout {
				b.Fatalf("%d documents are not stored before they are due", besideExpiring)
			}
			due = time.Now().Truncate(time.Second).Add(ahead)
			_, ok = storeDue(b, l, "short", besideExpiring, due.Unix())
		}
		time.Sleep(time.Until(due.Add(-time.Second / 2)))
		others := versus.StartRole(b, upserter, l.URL())
		time.Sleep(time.Until(due))
		before, began := status(), time.Now()
		rate := loudRound()
		after := status()
		busy += time.Since(began)
		if err := others.Stop(); err != nil {
			b.Fatalf("who was to upsert meanwhile: %v", err)
		}
		gone := before.PendingExpiry + before.Overdue - after.PendingExpiry - after.Overdue
		expired += gone
		upserted += int64(after.Seq-before.Seq) - gone
		return rate
	}, func() versus.Rate {
		// Let the rest of the due documents expire and of the requests be answered.
		versus.Settle(timeout, l.PID())
		return quietRound()
	})
	b.ReportMetric(float64(upserted)/busy.Seconds(), "upserts/s")
	b.ReportMetric(float64(expired)/busy.Seconds(), "expiries/s")
	versus.ReportP99(b, fmt.Sprintf("p99 of `get` beside %d callers that upsert, and expiries, %s", besideUpserting, countCallers(callers)),
		besideGoal[callers], loud.P99s(), quiet.P99s())
}
