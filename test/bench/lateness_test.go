package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

// Numbers of other documents that wait while probes expire, one step after the other.
// Peers run only in full, and not with the largest numbers, which take gigabytes in NATS
// KV and too long in Redis.
var (
	latenessWaiting = versus.Size([]int{0, 10_000, 100_000, 1_000_000, 10_000_000}, []int{0, 10_000, 100_000})
	latenessOfPeers = versus.Size([]int{0, 10_000, 100_000}, nil)
)

const (
	probes     = 1_000
	probeBatch = 25
	// probesFrom is the number of the first probe. Others begin at 0.
	probesFrom = 90_000_000
	// othersTTL is the ttl of others.
	othersTTL = 24 * time.Hour
	// lost is the least lateness of a probe whose expiry was not notified.
	lost = time.Minute
)

// probesOver is the time over which probes are stored, so that their deadlines spread
// over all parts of many seconds.
var probesOver = versus.Size(10*time.Second, 3*time.Second)

// probeTTL returns the ttl of probe n.
func probeTTL(n int) time.Duration { return time.Duration(1+n%3) * time.Second }

// BenchmarkLateness measures how late 1,000 documents with a ttl of 1 to 3 s expire while
// many others wait: the time at which NATS stored DocumentExpired, minus the deadline.
// logged is log time minus deadline. The others are in the same collection, half of them
// with a ttl of their own.
func BenchmarkLateness(b *testing.B) {
	var ours, logged, keys, redis [][]time.Duration
	for b.Loop() {
		ours, logged = latenessOfDocuments(b, latenessWaiting)
		keys = latenessOfMarkers(b, latenessOfPeers)
		redis = latenessOfRedis(b, latenessOfPeers)
	}
	b.ReportMetric(0, "ns/op")
	milliseconds := func(late []time.Duration, q float64) float64 { return versus.Milliseconds(versus.Quantile(late, q)) }
	var worst50, worst99 float64
	for i, late := range ours {
		p50, p99 := milliseconds(late, 0.5), milliseconds(late, 0.99)
		worst50, worst99 = max(worst50, p50), max(worst99, p99)
		suffix := fmt.Sprintf("-%d", latenessWaiting[i])
		b.ReportMetric(p50, "p50-ms"+suffix)
		b.ReportMetric(p99, "p99-ms"+suffix)
		b.ReportMetric(milliseconds(logged[i], 0.99), "logged-p99-ms"+suffix)
	}
	most := thousands(latenessWaiting[len(latenessWaiting)-1])
	work := fmt.Sprintf("lateness of 1,000 documents while 0 to %s others wait", most)
	versus.Report(b, versus.Row{Work: work + ", worst p50", Unit: " ms", Lapse: worst50, Goal: versus.AtMost(30)})
	versus.Report(b, versus.Row{Work: work + ", worst p99", Unit: " ms", Lapse: worst99, Goal: versus.AtMost(80)})
	flat := versus.Row{Work: fmt.Sprintf("lateness while %s others wait, p50", most), Peer: "lapse, none wait", Unit: " ms",
		Lapse: milliseconds(ours[len(ours)-1], 0.5), Other: milliseconds(ours[0], 0.5), Goal: versus.AtMost(1.3)}
	flat.Ratio = flat.Lapse / flat.Other
	b.ReportMetric(flat.Ratio, "last-to-first")
	versus.Report(b, flat)
	for _, peer := range []struct {
		name string
		late [][]time.Duration
	}{{kvMarkers, keys}, {"Redis, notified of `expired`", redis}} {
		for i, late := range peer.late {
			row := versus.Row{Work: fmt.Sprintf("lateness while %s others wait, p50", thousands(latenessOfPeers[i])), Peer: peer.name, Unit: " ms",
				Lapse: milliseconds(ours[i], 0.5), Other: milliseconds(late, 0.5)}
			row.Ratio = row.Lapse / row.Other
			versus.Report(b, row)
			b.Logf("%s, %d wait: p50 %v, p99 %v", peer.name, latenessOfPeers[i], versus.Quantile(late, 0.5), versus.Quantile(late, 0.99))
		}
	}
}

// latenessOfDocuments returns the lateness of each probe, by the time at which it was
// stored and by log time, for each number of waiting documents.
func latenessOfDocuments(b *testing.B, waiting []int) (stored, logged [][]time.Duration) {
	b.Helper()
	const collection = "orders"
	l := startLapse(b, processor.OS)
	l.create(b, collection, client.DefaultTTL(othersTTL))
	nc := versus.Connect(b, l.URL())
	var versions []version
	for step, others := range waiting {
		inBatches(b, l.URL(), before(waiting, step), others, func(nc *nats.Conn, from, to int) error {
			return storeBatch(nc, collection, from, make([]version, to-from), func(n int) time.Duration {
				return time.Duration(n%2) * othersTTL
			})
		})
		versus.Settle(lost, l.PID())
		first := len(versions)
		storeProbes(b, func(from int) error {
			batch := make([]version, probeBatch)
			err := storeBatch(nc, collection, probesFrom+first+from, batch, probeTTL)
			versions = append(versions, batch...)
			return err
		})
		for began := time.Now(); ; time.Sleep(stormPoll) {
			left, err := unexpired(l)
			if err != nil || left < int64(others) || time.Since(began) > lost {
				b.Fatalf("%d of %d documents are left after %s: %v", left, others, time.Since(began), err)
			}
			if left == int64(others) {
				break
			}
		}
		var late, log []time.Duration
		for _, e := range expiries(b, l, collection, probesFrom, versions)[first:] {
			late, log = append(late, e.late()), append(log, e.logTime.Sub(e.due))
		}
		stored, logged = append(stored, late), append(logged, log)
	}
	return stored, logged
}

// before returns how many others were waiting in the previous step.
func before(waiting []int, step int) int {
	if step == 0 {
		return 0
	}
	return waiting[step-1]
}

// storeProbes calls store for the first of each batch of probes, spread over probesOver.
func storeProbes(b *testing.B, store func(from int) error) {
	b.Helper()
	began := time.Now()
	for from := 0; from < probes; from += probeBatch {
		time.Sleep(time.Until(began.Add(probesOver * time.Duration(from) / probes)))
		check(b, store(from))
	}
}

// latenessOfMarkers returns the lateness of the markers of keys with a TTL.
func latenessOfMarkers(b *testing.B, waiting []int) (stored [][]time.Duration) {
	b.Helper()
	if len(waiting) == 0 {
		return nil
	}
	k := startMarkers(b)
	defer k.end()
	js := harness.JetStream(b, versus.Connect(b, k.URL))
	for step, others := range waiting {
		k.put(b, before(waiting, step), others, func(int) time.Duration { return othersTTL })
		versus.Settle(lost, k.PID)
		// The consumer gets the times at which each key and its marker were stored.
		ctx, cancel := context.WithTimeout(context.Background(), 2*lost)
		subject := fmt.Sprintf("%sprobe%d.", markersPrefix, step)
		ordered, err := js.OrderedConsumer(ctx, k.stream.CachedInfo().Config.Name, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject + ">"}})
		check(b, err)
		messages, err := ordered.Messages()
		check(b, err)
		var late []time.Duration
		watched := make(chan error, 1)
		go func() {
			late, err = watchMarkers(ctx, messages, subject)
			watched <- err
		}()
		storeProbes(b, func(from int) error {
			for n := from; n < from+probeBatch; n++ {
				if _, err := js.Publish(ctx, subject+versus.ID(n), versus.Document(n), jetstream.WithMsgTTL(probeTTL(n))); err != nil {
					return err
				}
			}
			return nil
		})
		check(b, <-watched)
		messages.Stop()
		cancel()
		stored = append(stored, late)
	}
	return stored
}

// watchMarkers reads probes and their markers, and returns the lateness of the markers.
func watchMarkers(ctx context.Context, messages jetstream.MessagesContext, subject string) (late []time.Duration, err error) {
	due := make(map[string]time.Time, probes)
	for len(late) < probes {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("%d of %d keys have a marker: %w", len(late), probes, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		if m.Headers().Get(jetstream.MarkerReasonHeader) == "" {
			n, err := documentNumber(strings.TrimPrefix(m.Subject(), subject))
			if err != nil {
				return nil, err
			}
			due[m.Subject()] = meta.Timestamp.Add(probeTTL(n))
			continue
		}
		at, ok := due[m.Subject()]
		if !ok || meta.Timestamp.Before(at) {
			return nil, fmt.Errorf("%s expired at %s, due at %s", m.Subject(), meta.Timestamp, at)
		}
		delete(due, m.Subject())
		late = append(late, meta.Timestamp.Sub(at))
	}
	return late, nil
}

// latenessOfRedis returns the lateness of the notifications that keys have expired.
// A key without one within a minute counts as that late.
func latenessOfRedis(b *testing.B, waiting []int) (heard [][]time.Duration) {
	b.Helper()
	if len(waiting) == 0 {
		return nil
	}
	r := startRedis(b, false)
	if r == nil {
		return nil
	}
	ctx := context.Background()
	check(b, r.client.ConfigSet(ctx, "notify-keyspace-events", "Ex").Err())
	events := r.client.Subscribe(ctx, "__keyevent@0__:expired")
	defer events.Close()
	if _, err := events.Receive(ctx); err != nil {
		b.Fatal(err)
	}
	notified := events.Channel(redis.WithChannelSize(probes))
	for step, others := range waiting {
		for n := before(waiting, step); n < others; {
			pipeline := r.client.Pipeline()
			for to := min(n+client.MaxBatch, others); n < to; n++ {
				pipeline.Set(ctx, versus.ID(n), versus.Document(n), othersTTL)
			}
			if _, err := pipeline.Exec(ctx); err != nil {
				b.Fatal(err)
			}
		}
		versus.Settle(lost, r.PID)
		due := make(map[string]time.Time, probes)
		var mu sync.Mutex
		var late []time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			for last := time.After(probesOver + probeTTL(2) + lost); len(late) < probes; {
				select {
				case m := <-notified:
					mu.Lock()
					if at, ok := due[m.Payload]; ok { // not from the previous step
						late = append(late, time.Since(at))
						delete(due, m.Payload)
					}
					mu.Unlock()
				case <-last:
					return
				}
			}
		}()
		storeProbes(b, func(from int) error {
			for n := from; n < from+probeBatch; n++ {
				key := fmt.Sprintf("probe%d-%d", step, n)
				mu.Lock()
				due[key] = time.Now().Add(probeTTL(n))
				mu.Unlock()
				if err := r.client.Set(ctx, key, versus.Document(n), probeTTL(n)).Err(); err != nil {
					return err
				}
			}
			return nil
		})
		<-done
		b.Logf("Redis, %d wait: nobody heard of %d of %d", others, len(due), probes)
		for range due {
			late = append(late, lost)
		}
		heard = append(heard, late)
	}
	return heard
}
