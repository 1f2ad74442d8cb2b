package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/child"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

// BenchmarkRestart kills a database with very many documents and measures the time from
// the start of the process to the first right reply to a get. The peers are a bare NATS
// server that opens the same streams, and a killed one that holds as many keys. Every
// start has to recover the state that the kill left, in the page cache. NATS gets a new
// copy each time. lapse reads the log's files while it runs and knows them by their
// inodes: it starts in place, on the projection that the kill left.
func BenchmarkRestart(b *testing.B) {
	documents := versus.Size(5_000_000, 100_000)
	l := startLapse(b, processor.OS)
	l.create(b, "orders", client.DefaultTTL(day))
	fill(b, l, "orders", documents)
	_, last, err := l.client.LogBounds(context.Background())
	check(b, err)
	time.Sleep(versus.Size(time.Minute, 0)) // lapse reads the full files in this time
	l.Kill()
	checked, _ := filepath.Glob(filepath.Join(l.Dir, "checked")) // none before a file is full
	left := copied(b, append(checked, filepath.Join(l.Dir, "projection"))...)
	dir := b.TempDir()
	server := versus.StartNATSIn(b, dir, false)
	fillKV(b, server.URL, documents, 0)
	server.Kill()

	sides := []func() time.Duration{
		func() time.Duration { return restartLapse(b, l.Dir, left, documents) },
		func() time.Duration { return openLog(b, l.Dir, last) },
		func() time.Duration { return restartKV(b, dir, documents) },
	}
	took := make([][]float64, len(sides))
	for b.Loop() {
		for round := range versus.Rounds {
			for i := range sides {
				i = (i + round) % len(sides)
				took[i] = append(took[i], sides[i]().Seconds())
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(versus.Median(took[0]), "lapse-s")
	for i, peer := range []struct {
		name, metric string
		goal         versus.Goal
	}{
		{"bare NATS server opening the log", "log", versus.AtMost(1.2)},
		{"NATS KV with as many keys", "kv", versus.AtMost(0.7)},
	} {
		theirs := took[i+1]
		ratios := make([]float64, len(theirs))
		for round := range theirs {
			ratios[round] = took[0][round] / theirs[round]
		}
		b.ReportMetric(versus.Median(theirs), peer.metric+"-s")
		b.ReportMetric(versus.Median(ratios), "ratio-"+peer.metric)
		versus.Report(b, versus.Row{Work: "restart after kill -9 with " + millions(documents) + " documents, to the first `get`", Peer: peer.name,
			Unit: " s", Goal: peer.goal, Lapse: versus.Median(took[0]), Other: versus.Median(theirs), Ratio: versus.Median(ratios)})
	}
}

// restartLapse starts lapse in its store directory, with the files that the kill left.
func restartLapse(b *testing.B, dir, left string, documents int) time.Duration {
	b.Helper()
	gone(b, filepath.Join(dir, "projection"))
	gone(b, filepath.Join(dir, "checked"))
	copyInto(b, dir, left+"/.")
	began := time.Now()
	l := &lapse{Server: harness.ServeIn(b, dir, "--durability", string(processor.OS))}
	nc := versus.Connect(b, l.URL())
	defer nc.Close()
	check := func(n int) {
		b.Helper()
		reply, err := request(nc, subject("get", "orders", n), nil, read)
		check(b, err)
		if content := versus.Document(n); !bytes.HasPrefix(reply.Data, content[:len(content)-1]) {
			b.Fatalf("document %d is %s, want %s", n, reply.Data, content)
		}
	}
	check(documents - 1)
	took := time.Since(began)
	for n := range 1000 {
		check(versus.Spread(n, documents))
	}
	var err error
	if l.client, err = client.New(nc); err != nil {
		b.Fatal(err)
	}
	l.waiting(b, documents)
	l.Kill()
	return took
}

// openLog starts a bare NATS server on a copy of lapse's streams, as streams of the
// global account.
func openLog(b *testing.B, killed string, last uint64) time.Duration {
	b.Helper()
	dir := copied(b, killed+"/jetstream")
	check(b, os.Rename(filepath.Join(dir, "jetstream", "LAPSE"), filepath.Join(dir, "jetstream", "$G")))
	began := time.Now()
	server := versus.StartNATSIn(b, dir, false)
	nc := versus.Connect(b, server.URL)
	defer nc.Close()
	stream, err := harness.JetStream(b, nc).Stream(context.Background(), "LAPSE_main")
	check(b, err)
	event, err := stream.GetMsg(context.Background(), last)
	check(b, err)
	took := time.Since(began)
	if state := stream.CachedInfo().State; state.LastSeq < last || !strings.HasPrefix(event.Subject, "lapse.main.events.") {
		b.Fatalf("the log ends at %d with %s, want %d", state.LastSeq, event.Subject, last)
	}
	server.Kill()
	gone(b, dir)
	return took
}

// restartKV starts a NATS server on a copy of a store directory with a bucket.
func restartKV(b *testing.B, killed string, documents int) time.Duration {
	b.Helper()
	dir := copied(b, killed+"/jetstream")
	began := time.Now()
	server := versus.StartNATSIn(b, dir, false)
	nc := versus.Connect(b, server.URL)
	defer nc.Close()
	bucket, err := harness.JetStream(b, nc).KeyValue(context.Background(), kvBucket)
	check(b, err)
	entry, err := bucket.Get(context.Background(), versus.ID(documents-1))
	check(b, err)
	took := time.Since(began)
	status, err := bucket.Status(context.Background())
	check(b, err)
	if status.Values() != uint64(documents) || !bytes.Equal(entry.Value(), versus.Document(documents-1)) {
		b.Fatalf("the bucket has %d keys, want %d, and at the last %s", status.Values(), documents, entry.Value())
	}
	server.Kill()
	gone(b, dir)
	return took
}

// copied returns a new directory with copies, synced so that no writeback of them is
// pending.
func copied(b *testing.B, from ...string) string {
	b.Helper()
	dir := b.TempDir()
	copyInto(b, dir, from...)
	return dir
}

func copyInto(b *testing.B, dir string, from ...string) {
	b.Helper()
	for _, command := range [][]string{
		append(append([]string{"cp", "-r", "--reflink=auto"}, from...), dir),
		{"sync", "-f", dir},
	} {
		if out, err := child.Command(b, command[0], command[1:]...).CombinedOutput(); err != nil {
			b.Fatal(fmt.Errorf("%v: %w\n%s", command, err, out))
		}
	}
}

// gone removes a directory at once, to save disk space.
func gone(b *testing.B, dir string) {
	b.Helper()
	check(b, os.RemoveAll(dir))
}
