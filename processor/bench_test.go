package processor

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/versus"
)

// startBench serves a database on a server of its own, with a collection bench whose
// documents live for an hour.
func startBench(b *testing.B) (*Processor, *embedded.Server) {
	b.Helper()
	dir := b.TempDir()
	server, err := embedded.Start(embedded.Options{StoreDir: dir, Listen: "127.0.0.1:-1", Databases: []schema.DatabaseName{"main"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Shutdown)
	p, err := Start(context.Background(), eventlog.Connections{Log: benchConn(b, server.ConnectLog), Service: benchConn(b, server.ConnectService)},
		Options{Dir: filepath.Join(dir, "projection"), Durability: OS, Version: "0.0.0"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.Stop(); err != nil {
			b.Error(err)
		}
	})
	feed(b, p, []*schema.Mutation{schema.NewMutation("collection.create.bench", []byte(`{"defaultTtl":3600}`))})
	return p, server
}

func benchConn(b *testing.B, connect func(...nats.Option) (*nats.Conn, error)) *nats.Conn {
	b.Helper()
	nc, err := connect()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	return nc
}

// feed passes mutations to the writer, which decides, appends and folds them. It returns
// after the last outcome.
func feed(b *testing.B, p *Processor, mutations []*schema.Mutation) {
	b.Helper()
	refused, told, left := 0, make(chan struct{}), len(mutations)
	done := func(o machine.Outcome) { // called on the writer's goroutine
		if o.Fault != nil {
			refused++
		}
		if left--; left == 0 {
			close(told)
		}
	}
	for _, mu := range mutations {
		p.writer.Proposals <- &writer.Proposal{Mutation: mu, Done: done}
	}
	select {
	case <-told:
	case err := <-p.Failed():
		b.Fatal(err)
	}
	if refused > 0 {
		b.Fatalf("%d of %d mutations were refused", refused, len(mutations))
	}
}

// upserts makes mutations from to to: every second one is a new document, the
// others replace an earlier one.
func upserts(from, to int) []*schema.Mutation {
	mutations := make([]*schema.Mutation, 0, to-from)
	for n := from; n < to; n++ {
		document := n / 2
		if n%2 == 1 {
			document = versus.Spread(n, n/2+1)
		}
		mutations = append(mutations, schema.NewMutation("document.upsert.bench."+versus.ID(document), versus.Document(document)))
	}
	return mutations
}

// BenchmarkAppend decides upserts, appends their events and folds them, without the
// requests. The peer is plain asynchronous publishing of the same messages to a stream
// configured like the log.
func BenchmarkAppend(b *testing.B) {
	const round = 50_000
	p, _ := startBench(b)
	peer := startPublisher(b)
	next := 0
	versus.Run(b, "decide, append, fold, without requests", func() versus.Rate {
		mutations := upserts(next, next+round)
		next += round
		clock := versus.Start()
		feed(b, p, mutations)
		return clock.Stop(round)
	}, versus.Peer{Name: "async JetStream publish of the same messages", Goal: versus.AtLeast(0.65), Round: func() versus.Rate { return peer.round(round) }})
}

// BenchmarkCatchUp folds a log into an empty projection. The peer is a plain ordered
// consumer of the same log.
func BenchmarkCatchUp(b *testing.B) {
	events := versus.Size(1_000_000, 100_000)
	p, server := startBench(b)
	feed(b, p, upserts(0, events))
	through := p.store.Cursor().Seq
	ctx := context.Background()
	log, err := eventlog.Open(ctx, eventlog.Connections{Log: benchConn(b, server.ConnectLog)}, p.options.forEventlog())
	if err != nil {
		b.Fatal(err)
	}
	peer := &consumer{b, versus.JetStream(b, benchConn(b, server.ConnectLog)), log.DB.LogStream()}
	versus.Run(b, "catch-up: read the log and fold it, "+versus.Size("1,000,000", "100,000")+" events", func() versus.Rate {
		store, err := projections.Open(b.TempDir(), projections.Options{})
		if err != nil {
			b.Fatal(err)
		}
		clock := versus.Start()
		err = log.CatchUp(ctx, store, through, nil)
		rate := clock.Stop(int(through))
		if err != nil {
			b.Fatal(err)
		}
		if got, want := store.Cursor().Hash, p.store.Cursor().Hash; got != want {
			b.Fatalf("folded to hash %x, the writer to %x", got, want)
		}
		if err := store.Close(); err != nil {
			b.Fatal(err)
		}
		return rate
	}, versus.Peer{Name: "ordered consumer", Goal: versus.AtLeast(0.65), Round: func() versus.Rate { return peer.round(through) }})
}
