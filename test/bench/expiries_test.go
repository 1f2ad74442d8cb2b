package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/versus"
)

// expiry is a DocumentExpired as a client reads it from the log.
type expiry struct {
	id       string
	previous string
	deadline int64     // s
	logTime  int64     // ms
	stored   time.Time // by NATS
}

// expiries reads the next DocumentExpired of a collection from the log. Each
// has to be of another version and none before its deadline.
func expiries(b *testing.B, l *lapse, collection string, n int) []expiry {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	js := versus.JetStream(b, versus.Connect(b, l.URL()))
	ordered, err := js.OrderedConsumer(ctx, "LAPSE_main", jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"lapse.main.events." + collection + ".DocumentExpired"},
	})
	if err != nil {
		b.Fatal(err)
	}
	messages, err := ordered.Messages()
	if err != nil {
		b.Fatal(err)
	}
	defer messages.Stop()
	all := make([]expiry, 0, n)
	seen := make(map[string]bool, n)
	for len(all) < n {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			b.Fatalf("%d of %d expired within %s: %v", len(all), n, timeout, err)
		}
		e, err := readExpiry(m)
		if err != nil {
			b.Fatal(err)
		}
		if e.logTime < e.deadline*1000 || e.stored.UnixMilli() < e.deadline*1000 {
			b.Fatalf("%s expired early: %+v", e.id, e)
		}
		version := e.id + " " + e.previous
		if seen[version] {
			b.Fatalf("%s expired twice: %+v", e.id, e)
		}
		seen[version] = true
		all = append(all, e)
	}
	return all
}

func readExpiry(m jetstream.Msg) (e expiry, err error) {
	header := m.Headers()
	e.id, e.previous = header.Get(schema.HeaderID), header.Get(schema.HeaderPrevious)
	meta, err := m.Metadata()
	if err != nil {
		return e, err
	}
	e.stored = meta.Timestamp
	if e.deadline, err = strconv.ParseInt(header.Get(schema.HeaderDeadline), 10, 64); err != nil {
		return e, err
	}
	e.logTime, err = strconv.ParseInt(header.Get(schema.HeaderTime), 10, 64)
	return e, err
}

// BenchmarkLateness says how long after their deadline documents with a short
// ttl expire while many others wait: log time minus deadline, in ms. stored-p99
// is the same by the time at which the log had it.
func BenchmarkLateness(b *testing.B) {
	const waiting, probes = 100_000, 1_000
	l := startLapse(b, processor.OS)
	load(b, l.create(b, "waiting", client.DefaultTTL(time.Hour)), 0, waiting, versus.Document)
	probed := l.create(b, "probes", client.TTLPerDocument())
	var late, stored []float64
	for b.Loop() {
		from := len(late)
		for n := from; n < from+probes; n += probes / 20 {
			load(b, probed, n, n+probes/20, func(n int) []byte {
				return versus.DocumentWith(n, fmt.Sprintf(`"ttl":%d,`, 1+n%3))
			})
			time.Sleep(50 * time.Millisecond) // so that they come at any part of a second
		}
		for _, e := range expiries(b, l, "probes", from+probes)[from:] {
			late = append(late, float64(e.logTime-e.deadline*1000))
			stored = append(stored, float64(e.stored.UnixMilli()-e.deadline*1000))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(versus.Quantile(late, 0.50), "p50-ms")
	b.ReportMetric(versus.Quantile(late, 0.99), "p99-ms")
	b.ReportMetric(versus.Quantile(late, 1), "max-ms")
	b.ReportMetric(versus.Quantile(stored, 0.99), "stored-p99-ms")
}

// BenchmarkBurst lets many documents come due in one second and says how many
// expire a second, from then until the last DocumentExpired is in the log.
func BenchmarkBurst(b *testing.B) {
	const documents, ahead = 100_000, 15 // s
	l := startLapse(b, processor.OS)
	var rates []float64
	for b.Loop() {
		name := fmt.Sprintf("burst%d", len(rates))
		due := time.Now().Unix() + ahead
		loadDue(b, l.create(b, name, client.TTLPerDocument()), documents, due)
		if time.Now().Unix() >= due {
			b.Fatalf("%d documents were not stored within %d s", documents, ahead)
		}
		// Nobody reads meanwhile: that would share the machine.
		time.Sleep(time.Until(time.Unix(due, 0)))
		for pending := int64(1); pending > 0; {
			time.Sleep(time.Second / 2)
			status, err := l.client.Status(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			pending = status.PendingExpiry + status.Overdue
		}
		all := expiries(b, l, name, documents)
		for _, e := range all {
			if e.deadline != due {
				b.Fatalf("the deadline is %d: %+v", due, e)
			}
		}
		rates = append(rates, documents/all[documents-1].stored.Sub(time.Unix(due, 0)).Seconds())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(versus.Median(rates), "expiries/s")
}

// loadDue stores documents that are all due at the same second.
func loadDue(b *testing.B, c *client.Collection, documents int, due int64) {
	b.Helper()
	for from := 0; from < documents; {
		to := min(from+client.MaxBatch, documents)
		ttl := due - time.Now().Unix()
		results := load(b, c, from, to, func(n int) []byte {
			return versus.DocumentWith(n, fmt.Sprintf(`"ttl":%d,`, ttl))
		})
		stored, err := client.Decode[json.RawMessage](results[0])
		if err != nil {
			b.Fatal(err)
		}
		if stored.TS+ttl == due { // else a second passed on the way
			from = to
		}
	}
}
