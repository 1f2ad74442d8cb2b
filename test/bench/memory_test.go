package bench

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

// memoryRest is the time in which a process can return the memory needed for loading.
const memoryRest = time.Minute

// BenchmarkMemory measures the resident memory of a process in which very many documents
// wait to expire, at most while they are stored and a minute after, against a NATS server that
// holds them as keys with a TTL each. Only one of them runs at a time.
func BenchmarkMemory(b *testing.B) {
	documents := versus.Size(10_000_000, 200_000)
	var ours, theirs harness.Memory
	for b.Loop() {
		l := startLapse(b, processor.OS)
		l.create(b, "orders", client.DefaultTTL(day))
		fill(b, l, "orders", documents)
		time.Sleep(memoryRest)
		ours = l.Memory()
		l.waiting(b, documents)
		l.Kill()

		server := versus.StartNATS(b, false)
		fillKV(b, server.URL, documents, day)
		time.Sleep(memoryRest)
		theirs = harness.MemoryOf(b, server.PID)
		server.Kill()
	}
	b.ReportMetric(0, "ns/op")
	what := millions(documents) + " documents waiting to expire"
	memoryRow(b, "memory of a process with "+what, "", ours.Now, theirs.Now)
	memoryRow(b, "memory of a process at most while it gets "+what, "peak-", ours.Most, theirs.Most)
}

func memoryRow(b *testing.B, work, prefix string, ours, theirs int64) {
	row := versus.Row{Work: work, Peer: "NATS KV with TTLs", Unit: " MB", Goal: versus.AtMost(0.35), Lapse: megabytes(ours), Other: megabytes(theirs)}
	row.Ratio = row.Lapse / row.Other
	b.ReportMetric(row.Lapse, "lapse-"+prefix+"MB")
	b.ReportMetric(row.Other, "peer-"+prefix+"MB")
	b.ReportMetric(row.Ratio, prefix+"ratio")
	versus.Report(b, row)
}

func megabytes(n int64) float64 { return float64(n) / 1e6 }

// fillKV stores the first documents as keys, as KeyValue does, but without waiting for
// each of them. Each key has a TTL, unless ttl is 0.
func fillKV(b *testing.B, url string, documents int, ttl time.Duration) {
	b.Helper()
	nc := versus.Connect(b, url)
	defer nc.Close()
	p := publishTo(b, nc)
	config := jetstream.KeyValueConfig{Bucket: kvBucket, Storage: jetstream.FileStorage}
	var header nats.Header
	if ttl > 0 {
		config.LimitMarkerTTL, header = time.Hour, nats.Header{jetstream.MsgTTLHeader: {ttl.String()}}
	}
	bucket, err := p.js.CreateKeyValue(context.Background(), config)
	check(b, err)
	for n := range documents {
		p.publish(&nats.Msg{Subject: "$KV." + kvBucket + "." + versus.ID(n), Header: header, Data: versus.Document(n)})
	}
	p.wait()
	status, err := bucket.Status(context.Background())
	check(b, err)
	if status.Values() != uint64(documents) {
		b.Fatalf("the bucket has %d keys, want %d", status.Values(), documents)
	}
}
