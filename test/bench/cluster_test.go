package bench

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/cluster"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

// BenchmarkCluster stores documents by request with the log on three NATS servers, each
// event on all of them. The peer is NATS KV with as many replicas on the same servers,
// and as many callers, keys and bytes. All run on one machine, so the network between
// the servers is not measured. All connect to the server that leads both streams; from
// another one each way is longer, by chance for one side more than the other.
func BenchmarkCluster(b *testing.B) {
	for _, durability := range []processor.Durability{processor.OS, processor.Fsync} {
		b.Run(string(durability), func(b *testing.B) { benchmarkCluster(b, durability) })
	}
}

func benchmarkCluster(b *testing.B, durability processor.Durability) {
	servers := cluster.Start(b, b.TempDir(), cluster.Options{SyncAlways: durability == processor.Fsync, Ungated: true})
	url := servers.Nodes[0].URL()
	log, err := os.Create(b.TempDir() + "/lapse.log")
	check(b, err)
	b.Cleanup(func() { log.Close() })
	l := startProfiled(b, func(args ...string) *harness.Server { return harness.ServeRemote(b, url, b.TempDir(), log, args...) },
		"--durability", string(durability), "--replicas", "3")
	l.create(b, "orders", client.DefaultTTL(time.Hour))
	conns := versus.Connections(b, url, connections)
	peer := clusterKV(b, url)
	for _, stream := range []string{"LAPSE_main", "KV_" + kvBucket} {
		servers.Lead(conns[0], 0, stream)
	}
	name, on := "NATS KV `Put` with 3 replicas", fmt.Sprintf("3 NATS servers, `%s`", durability)
	if durability == processor.Fsync {
		name += ", `sync_interval: always`"
	}
	goals := map[int]versus.Goal{1: versus.AtLeast(0.6), 256: versus.AtLeast(0.8)}
	for _, callers := range []int{1, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			versus.Run(b, fmt.Sprintf("`upsert` by request, %s, %s", on, countCallers(callers)), l.upserts(b, conns, callers),
				versus.Peer{Name: name, Goal: goals[callers], Round: peer.puts(b, callers)})
		})
	}
	b.Run("batch", func(b *testing.B) {
		const callers, puts = 64, 256
		versus.Run(b, fmt.Sprintf("`batch` of 100 upserts, documents, %s, %d callers", on, callers), l.batches(b, conns, callers),
			versus.Peer{Name: name + fmt.Sprintf(", %d callers", puts), Round: peer.puts(b, puts)})
	})
}

// clusterKV creates a bucket with three replicas. The metadata leader refuses until it
// has heard from the other servers.
func clusterKV(b *testing.B, url string) *kv {
	b.Helper()
	k := &kv{}
	config := jetstream.KeyValueConfig{Bucket: kvBucket, Storage: jetstream.FileStorage, Replicas: cluster.Nodes}
	for _, nc := range versus.Connections(b, url, connections) {
		js := harness.JetStream(b, nc)
		bucket, err := js.CreateOrUpdateKeyValue(context.Background(), config)
		for patience := time.Now().Add(timeout); err != nil && time.Now().Before(patience); time.Sleep(50 * time.Millisecond) {
			bucket, err = js.CreateOrUpdateKeyValue(context.Background(), config)
		}
		check(b, err)
		k.buckets = append(k.buckets, bucket)
	}
	return k
}
