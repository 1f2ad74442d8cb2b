package bench

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/versus"
)

// startKV makes a NATS KV bucket on disk and returns it once for each
// connection.
func startKV(b *testing.B, syncAlways bool) []jetstream.KeyValue {
	b.Helper()
	url := versus.StartServer(b, syncAlways)
	js := versus.JetStream(b, versus.Connect(b, url))
	config := jetstream.KeyValueConfig{Bucket: "bench", Storage: jetstream.FileStorage}
	if _, err := js.CreateKeyValue(context.Background(), config); err != nil {
		b.Fatal(err)
	}
	buckets := make([]jetstream.KeyValue, connections)
	for i, nc := range versus.Connections(b, url, connections) {
		bucket, err := versus.JetStream(b, nc).KeyValue(context.Background(), config.Bucket)
		if err != nil {
			b.Fatal(err)
		}
		buckets[i] = bucket
	}
	return buckets
}
