package bench

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

// stored is a database with documents, and the same in NATS KV.
type stored struct {
	*lapse
	kv        *kv
	conns     []*nats.Conn
	documents int
}

func startStored(b *testing.B, documents int) *stored {
	b.Helper()
	s := &stored{lapse: startLapse(b, processor.OS), kv: startKV(b, false), documents: documents}
	load(b, s.create(b, "orders", client.DefaultTTL(time.Hour)), 0, documents, versus.Document)
	for n := range documents {
		check(b, s.kv.put(0, n))
	}
	s.conns = versus.Connections(b, s.URL(), connections)
	return s
}

func (s *stored) get(caller, n int) error {
	_, err := request(s.conns[caller%connections], subject("get", "orders", n), nil, read)
	return err
}

// BenchmarkGet reads documents by request, against a service that echoes a body of the
// size of the reply, and against NATS KV. The service has as many subjects as there are
// documents, since the lookup of a subject's subscribers is a good part of the cost of a
// request in a NATS server. Redis, if installed, shows the cost of another protocol.
func BenchmarkGet(b *testing.B) {
	const documents = 20_000
	s := startStored(b, documents)
	reply, err := request(s.conns[0], subject("get", "orders", 0), nil, read)
	check(b, err)
	body := bytes.Clone(reply.Data)
	service := versus.StartEcho(b)
	echo := versus.Connections(b, service.URL, connections)
	redis := startRedis(b, false)
	if redis != nil {
		for n := range documents {
			check(b, redis.put(1, n))
		}
	}
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			side := func(process int, get func(caller, n int) error) versus.Side {
				return (&versus.Callers{N: callers, For: roundTime, Process: process, Do: func(caller, n int) error {
					return get(caller, versus.Spread(n, documents))
				}}).Round(b)
			}
			peers := []versus.Peer{
				{Name: "echo service", Goal: versus.AtLeast(0.9), Round: side(service.PID, func(caller, n int) error {
					_, err := echo[caller%connections].Request(versus.EchoSubject+"."+versus.ID(n), body, timeout)
					return err
				})},
				{Name: "NATS KV `Get`", Goal: versus.AtLeast(1), Round: side(s.kv.PID, s.kv.get)},
			}
			if redis != nil {
				peers = append(peers, versus.Peer{Name: "Redis `GET`", Round: side(redis.PID, func(_, n int) error {
					return redis.get(callers, n)
				})})
			}
			versus.Run(b, fmt.Sprintf("`get` by request, %s", countCallers(callers)), side(s.PID(), s.get), peers...)
		})
	}
}

func countCallers(n int) string {
	if n == 1 {
		return "1 caller"
	}
	return fmt.Sprintf("%d callers", n)
}

// BenchmarkGetOfMany gets any of very many documents, against any of few in a database of
// its own, which fit into its cache: with the cache as it is, and with a large one.
func BenchmarkGetOfMany(b *testing.B) {
	const callers, few, large = 64, 10_000, "5GiB"
	many := versus.Size(20_000_000, 200_000)
	side := func(l *lapse, documents int) versus.Side {
		s := &stored{lapse: l, conns: versus.Connections(b, l.URL(), connections)}
		return (&versus.Callers{N: callers, For: roundTime, Process: l.PID(), Do: func(caller, n int) error {
			return s.get(caller, versus.Spread(n, documents))
		}}).Round(b)
	}
	filled := func(documents int) *lapse {
		l := startLapse(b, processor.OS)
		l.create(b, "orders", client.DefaultTTL(day))
		fill(b, l, "orders", documents)
		return l
	}
	l, other := filled(many), filled(few)
	work := fmt.Sprintf("`get` of any of %s documents, %s", millions(many), countCallers(callers))
	peer := versus.Peer{Name: fmt.Sprintf("any of %s", thousands(few)), Goal: versus.AtLeast(0.9), Round: side(other, few)}
	b.Run("cache=auto", func(b *testing.B) {
		versus.Settle(10*time.Minute, l.PID()) // compactions
		versus.Run(b, work, side(l, many), peer)
	})
	l.Stop()
	l = startProfiled(b, func(args ...string) *harness.Server { return harness.ServeIn(b, l.Dir, args...) }, "--cache-bytes", large)
	b.Run("cache="+large, func(b *testing.B) {
		inBatches(b, l.URL(), 0, many, func(nc *nats.Conn, from, to int) error { // into the cache
			var body batchBody
			for n := from; n < to; n++ {
				body.get(n)
			}
			return askBatch(nc, "orders", body.end(), to-from)
		})
		versus.Settle(10*time.Minute, l.PID()) // the log is checked
		versus.Run(b, work+", `--cache-bytes "+large+"`", side(l, many), peer)
	})
}

// BenchmarkBatchGet reads a hundred documents per request, against NATS KV reading one
// at a time.
func BenchmarkBatchGet(b *testing.B) {
	const documents, callers, batch = 20_000, 64, 100
	s := startStored(b, documents)
	bodies := make([][]byte, documents/batch)
	for i := range bodies {
		var body batchBody
		for n := range batch {
			body.get(versus.Spread(i*batch+n, documents))
		}
		bodies[i] = body.end()
	}
	ours := &versus.Callers{N: callers, For: roundTime, Process: s.PID(), Each: batch, Do: func(caller, n int) error {
		return askBatch(s.conns[caller%connections], "orders", bodies[n%len(bodies)], batch)
	}}
	theirs := &versus.Callers{N: callers, For: roundTime, Process: s.kv.PID, Do: func(caller, n int) error {
		return s.kv.get(caller, versus.Spread(n, documents))
	}}
	versus.Run(b, "`batch` of 100 gets, documents, 64 callers", ours.Round(b),
		versus.Peer{Name: "NATS KV `Get`", Goal: versus.AtLeast(5), Round: theirs.Round(b)})
}
