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

// upsertGoals are the goals for the rate of upserts relative to KV's Put.
var upsertGoals = map[processor.Durability]struct {
	callers map[int]versus.Goal
	batch   versus.Goal
}{
	processor.OS:    {map[int]versus.Goal{1: versus.AtLeast(0.6), 16: {}, 64: versus.AtLeast(0.65), 256: versus.AtLeast(0.75)}, versus.AtLeast(1.2)},
	processor.Fsync: {map[int]versus.Goal{1: versus.AtLeast(0.6), 16: versus.AtLeast(3), 64: versus.AtLeast(6), 256: versus.AtLeast(10)}, versus.AtLeast(15)},
}

// BenchmarkUpsert stores documents by request, one at a time or a hundred, against NATS
// KV with as many callers, keys and bytes and the same durability, and against Redis if
// it is installed.
func BenchmarkUpsert(b *testing.B) {
	for _, durability := range []processor.Durability{processor.OS, processor.Fsync} {
		b.Run(string(durability), func(b *testing.B) { benchmarkUpsert(b, durability) })
	}
}

// upserted is the number of distinct documents, upsertBatch that of documents in a batch.
const upserted, upsertBatch = 20_000, 100

func benchmarkUpsert(b *testing.B, durability processor.Durability) {
	l := startLapse(b, durability)
	l.create(b, "orders", client.DefaultTTL(time.Hour))
	conns := versus.Connections(b, l.URL(), connections)
	peer := startKV(b, durability == processor.Fsync)
	name, redisName := "NATS KV `Put`", "Redis `SET` with `EX`, `appendfsync everysec`"
	if durability == processor.Fsync {
		name += ", `sync_interval: always`"
		redisName = "Redis `SET` with `EX`, `appendfsync always`"
	}
	redis := startRedis(b, durability == processor.Fsync)
	goals := upsertGoals[durability]
	for _, callers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			peers := []versus.Peer{{Name: name, Goal: goals.callers[callers], Round: peer.puts(b, callers)}}
			if redis != nil {
				set := &versus.Callers{N: callers, For: roundTime, Process: redis.PID, Do: func(_, n int) error {
					return redis.put(callers, versus.Spread(n, upserted))
				}}
				peers = append(peers, versus.Peer{Name: redisName, Round: set.Round(b)})
			}
			versus.Run(b, fmt.Sprintf("`upsert` by request, %s, `%s`", countCallers(callers), durability), l.upserts(b, conns, callers), peers...)
		})
	}
	b.Run("batch", func(b *testing.B) {
		const callers, puts = 64, 256
		versus.Run(b, fmt.Sprintf("`batch` of 100 upserts, documents, %d callers, `%s`", callers, durability), l.batches(b, conns, callers),
			versus.Peer{Name: name + fmt.Sprintf(", %d callers", puts), Goal: goals.batch, Round: peer.puts(b, puts)})
	})
}

// upserts returns a side whose callers upsert documents in orders by request.
func (l *lapse) upserts(b *testing.B, conns []*nats.Conn, callers int) versus.Side {
	return (&versus.Callers{N: callers, For: roundTime, Process: l.PID(), Do: func(caller, n int) error {
		n = versus.Spread(n, upserted)
		_, err := request(conns[caller%connections], subject("upsert", "orders", n), versus.Document(n), written)
		return err
	}}).Round(b)
}

// batches returns a side whose callers upsert in batches.
func (l *lapse) batches(b *testing.B, conns []*nats.Conn, callers int) versus.Side {
	return (&versus.Callers{N: callers, For: roundTime, Process: l.PID(), Each: upsertBatch, Do: func(caller, n int) error {
		var body batchBody
		for i := range upsertBatch {
			body.document(versus.Spread(n*upsertBatch+i, upserted), "")
		}
		return askBatch(conns[caller%connections], "orders", body.end(), upsertBatch)
	}}).Round(b)
}

// puts returns a side whose callers put the same documents.
func (k *kv) puts(b *testing.B, callers int) versus.Side {
	of := 0
	if k.Process != nil {
		of = k.PID
	}
	return (&versus.Callers{N: callers, For: roundTime, Process: of, Do: func(caller, n int) error {
		return k.put(caller, versus.Spread(n, upserted))
	}}).Round(b)
}

// askBatch sends a batch of n operations and fails unless all succeed.
func askBatch(nc *nats.Conn, collection string, body []byte, n int) error {
	reply, err := request(nc, "lapse.main.api.batch."+collection, body, read)
	if err != nil {
		return err
	}
	if ok := documents(reply.Data); ok != n {
		return fmt.Errorf("%d of %d operations succeeded: %.200s", ok, n, reply.Data)
	}
	return nil
}
