package bench

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startBench serves a database on a server of its own, with a collection bench whose
// documents live for an hour.
func startBench(b *testing.B) (*processor.Processor, *embedded.Server) {
	b.Helper()
	dir := b.TempDir()
	server, err := embedded.Start(embedded.Options{StoreDir: dir, Listen: "127.0.0.1:-1", Databases: []schema.DatabaseName{"main"}})
	check(b, err)
	b.Cleanup(server.Shutdown)
	p, err := processor.Start(context.Background(), eventlog.Connections{Log: benchConn(b, server.ConnectLog), Service: benchConn(b, server.ConnectService)},
		processor.Options{Dir: filepath.Join(dir, "projection"), Durability: processor.OS, Version: "0.0.0"})
	check(b, err)
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
	check(b, err)
	b.Cleanup(nc.Close)
	return nc
}

// feed passes mutations to the writer, which decides, appends and folds them. It returns
// after the last outcome.
func feed(b *testing.B, p *processor.Processor, mutations []*schema.Mutation) {
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
		processortest.Inside(p).Writer.Proposals <- &writer.Proposal{Mutation: mu, Done: done}
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
	peer := startAppender(b)
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
	through := processortest.Inside(p).Store.Cursor().Seq
	ctx := context.Background()
	log, err := eventlog.Open(ctx, eventlog.Connections{Log: benchConn(b, server.ConnectLog)}, eventlog.Config{Database: "main"})
	check(b, err)
	peer := &consumer{b, harness.JetStream(b, benchConn(b, server.ConnectLog)), log.DB.LogStream()}
	versus.Run(b, "catch-up: read the log and fold it, "+versus.Size("1,000,000", "100,000")+" events", func() versus.Rate {
		store, err := projections.Open(b.TempDir(), projections.Options{})
		check(b, err)
		clock := versus.Start()
		err = log.CatchUp(ctx, store, through, nil)
		rate := clock.Stop(int(through))
		check(b, err)
		if got, want := store.Cursor().Hash, processortest.Inside(p).Store.Cursor().Hash; got != want {
			b.Fatalf("folded to hash %x, the writer to %x", got, want)
		}
		check(b, store.Close())
		return rate
	}, versus.Peer{Name: "ordered consumer", Goal: versus.AtLeast(0.65), Round: func() versus.Rate { return peer.round(through) }})
}

// consumer reads a stream with an ordered consumer and only touches each message. A
// callback is the fastest way to do so.
type consumer struct {
	b      *testing.B
	js     jetstream.JetStream
	stream string
}

// round reads the first n messages of the stream.
func (c *consumer) round(n uint64) versus.Rate {
	clock := versus.Start()
	ordered, err := c.js.OrderedConsumer(context.Background(), c.stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		c.b.Fatal(err)
	}
	seen, bytes, done := uint64(0), 0, make(chan struct{})
	consuming, err := ordered.Consume(func(m jetstream.Msg) {
		seen++
		bytes += len(m.Headers().Get(schema.HeaderTime)) + len(m.Data())
		if seen == n {
			close(done)
		}
	}, jetstream.PullMaxMessagesWithBytesLimit(eventlog.ReadAhead, eventlog.ReadAheadBytes))
	if err != nil {
		c.b.Fatal(err)
	}
	<-done
	rate := clock.Stop(int(n))
	consuming.Stop()
	<-consuming.Closed()
	if bytes == 0 {
		c.b.Fatal("the messages are empty")
	}
	return rate
}

// appender publishes asynchronously the subjects, headers and bodies that the writer
// would append, to a stream configured like the log, but without fence, decisions and
// folds. It makes the messages beforehand.
type appender struct {
	b      *testing.B
	js     jetstream.JetStream
	prefix string
	store  *projections.Store
	decide *machine.Machine
	next   int
}

// appendAhead is the limit of unacknowledged messages: a higher one makes publishing no
// faster, a lower one slower.
const appendAhead = 4096

func startAppender(b *testing.B) *appender {
	b.Helper()
	p := &appender{b: b, prefix: schema.DatabaseName("main").Append() + "K7Q2ZD5W3MBVX4TAHC6RNE."}
	p.js = harness.JetStream(b, versus.Connect(b, versus.StartServer(b, false)), jetstream.WithPublishAsyncMaxPending(appendAhead))
	_, err := p.js.CreateStream(context.Background(), eventlog.LogConfig("main", p.prefix))
	check(b, err)
	if p.store, err = projections.Open("projection", projections.Options{FS: vfs.NewMem()}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.store.Close() })
	if p.decide, err = machine.NewMachine(p.store); err != nil {
		b.Fatal(err)
	}
	p.messages([]*schema.Mutation{schema.NewMutation("collection.create.bench", []byte(`{"defaultTtl":3600}`))})
	return p
}

// messages returns the messages that the writer would append for mutations.
func (p *appender) messages(mutations []*schema.Mutation) []*nats.Msg {
	messages := make([]*nats.Msg, 0, len(mutations))
	for _, mu := range mutations {
		if _, err := p.decide.Decide(time.Now().UnixMilli(), mu); err != nil {
			p.b.Fatal(err)
		}
		for _, fact := range p.decide.Take() {
			m := &nats.Msg{Subject: p.prefix + fact.EventTokens(), Header: nats.Header{}, Data: fact.Body}
			fact.Headers(func(name, value string) { m.Header[name] = []string{value} })
			messages = append(messages, m)
		}
		if p.decide.Pending() >= machine.SimulationPending {
			p.fold()
		}
	}
	p.fold()
	return messages
}

func (p *appender) fold() {
	if err := p.decide.Commit(p.decide.Seq()); err != nil {
		p.b.Fatal(err)
	}
}

// round publishes n messages and waits for all acknowledgements.
func (p *appender) round(n int) versus.Rate {
	messages := p.messages(upserts(p.next, p.next+n))
	p.next += n
	clock := versus.Start()
	var last jetstream.PubAckFuture
	for _, m := range messages {
		var err error
		if last, err = p.js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
			p.b.Fatal(err)
		}
	}
	<-p.js.PublishAsyncComplete()
	rate := clock.Stop(len(messages))
	select {
	case <-last.Ok():
	case err := <-last.Err():
		p.b.Fatal(err)
	}
	return rate
}
