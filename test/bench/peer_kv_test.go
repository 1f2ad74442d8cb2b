package bench

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

// kv is a NATS KV bucket on disk, opened once for each connection, on a server in a
// process of its own.
type kv struct {
	*versus.Process
	buckets []jetstream.KeyValue
}

const kvBucket = "bench"

func startKV(b *testing.B, syncAlways bool) *kv {
	b.Helper()
	server := versus.StartNATS(b, syncAlways)
	js := harness.JetStream(b, versus.Connect(b, server.URL))
	config := jetstream.KeyValueConfig{Bucket: kvBucket, Storage: jetstream.FileStorage}
	if _, err := js.CreateKeyValue(context.Background(), config); err != nil {
		b.Fatal(err)
	}
	k := &kv{Process: server}
	for _, nc := range versus.Connections(b, server.URL, connections) {
		bucket, err := harness.JetStream(b, nc).KeyValue(context.Background(), config.Bucket)
		check(b, err)
		k.buckets = append(k.buckets, bucket)
	}
	return k
}

// put stores document n, the counterpart of an upsert.
func (k *kv) put(caller, n int) error {
	_, err := k.buckets[caller%connections].Put(context.Background(), versus.ID(n), versus.Document(n))
	return err
}

func (k *kv) get(caller, n int) error {
	_, err := k.buckets[caller%connections].Get(context.Background(), versus.ID(n))
	return err
}
