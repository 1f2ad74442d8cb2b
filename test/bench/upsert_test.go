package bench

import (
	"context"
	"testing"
	"time"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/versus"
)

// BenchmarkUpsert stores documents by request, against NATS KV with as many
// callers, keys and bytes, and as durable.
func BenchmarkUpsert(b *testing.B) {
	for _, durability := range []processor.Durability{processor.OS, processor.Fsync} {
		b.Run(string(durability), func(b *testing.B) { benchmarkUpsert(b, durability) })
	}
}

func benchmarkUpsert(b *testing.B, durability processor.Durability) {
	const callers, documents = 256, 20_000
	l := startLapse(b, durability)
	l.create(b, "orders", client.DefaultTTL(time.Hour))
	ours := versus.Connections(b, l.URL(), connections)
	theirs := startKV(b, durability == processor.Fsync)

	lapse := &versus.Callers{N: callers, For: roundTime, Do: func(caller, n int) error {
		n = versus.Spread(n, documents)
		_, err := request(ours[caller%connections], subject("upsert", "orders", n), versus.Document(n), written)
		return err
	}}
	peer := &versus.Callers{N: callers, For: roundTime, Do: func(caller, n int) error {
		n = versus.Spread(n, documents)
		_, err := theirs[caller%connections].Put(context.Background(), versus.ID(n), versus.Document(n))
		return err
	}}
	versus.Run(b, lapse.Round(b), peer.Round(b))
}
