package bench

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/test/cluster"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

// BenchmarkCluster stores documents by request where three NATS servers keep the
// log, each event on all of them, against NATS KV with as many replicas on the
// same servers, and as many callers, keys and bytes. All of it on one machine: the
// network between the servers is not in it.
func BenchmarkCluster(b *testing.B) {
	servers := cluster.Start(b, b.TempDir())
	url := servers.Access().URL(0)
	log, err := os.Create(b.TempDir() + "/lapse.log")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { log.Close() })
	server := harness.ServeRemote(b, url, b.TempDir(), log, "--replicas", "3")
	conns := versus.Connections(b, url, connections)
	c, err := client.New(conns[0])
	if err != nil {
		b.Fatal(err)
	}
	l := &lapse{server, c}
	l.create(b, "orders", client.DefaultTTL(time.Hour))
	peer := clusterKV(b, url)
	name := "NATS KV `Put` with 3 replicas"
	for _, callers := range []int{1, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			versus.Run(b, fmt.Sprintf("`upsert` by request, 3 NATS servers, %s", countCallers(callers)), l.upserts(b, conns, callers),
				versus.Peer{Name: name, Round: peer.puts(b, callers)})
		})
	}
	b.Run("batch", func(b *testing.B) {
		const callers, puts = 64, 256
		versus.Run(b, fmt.Sprintf("`batch` of 100 upserts, documents, 3 NATS servers, %d callers", callers), l.batches(b, conns, callers),
			versus.Peer{Name: name + fmt.Sprintf(", %d callers", puts), Round: peer.puts(b, puts)})
	})
}

// clusterKV is a bucket that all three servers keep.
func clusterKV(b *testing.B, url string) *kv {
	b.Helper()
	k := &kv{}
	config := jetstream.KeyValueConfig{Bucket: kvBucket, Storage: jetstream.FileStorage, Replicas: cluster.Nodes}
	for _, nc := range versus.Connections(b, url, connections) {
		bucket, err := versus.JetStream(b, nc).CreateOrUpdateKeyValue(context.Background(), config)
		if err != nil {
			b.Fatal(err)
		}
		k.buckets = append(k.buckets, bucket)
	}
	return k
}
