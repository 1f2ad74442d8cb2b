package bench

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/versus"
)

const (
	// publishAhead is how many messages may wait for their acknowledgement.
	publishAhead = 4096
	// foldedPoll is how often it is asked whether everything is folded: what
	// lies between shows in no round of seconds.
	foldedPoll = 5 * time.Millisecond
)

// BenchmarkMutations publishes upserts as JetStream messages, until lapse has
// judged and folded the last of them, against publishing the same messages to a
// stream that does nothing with them. Half of them are new documents, half
// replace one.
func BenchmarkMutations(b *testing.B) {
	messages := versus.Size(1_000_000, 50_000)
	l := startLapse(b, processor.OS)
	l.create(b, "orders", client.DefaultTTL(day))
	ours := startPublisher(b, l.URL())
	ours.until = func() { l.judged(b) }

	server := versus.StartNATS(b, false)
	theirs := startPublisher(b, server.URL)
	if _, err := theirs.js.CreateStream(context.Background(), jetstream.StreamConfig{
		Name:       "LAPSE_main_MUTATIONS", // configured as lapse does
		Subjects:   []string{mutations + ">"},
		Storage:    jetstream.FileStorage,
		DenyDelete: true,
		Replicas:   1,
		Duplicates: 100 * time.Millisecond,
	}); err != nil {
		b.Fatal(err)
	}
	versus.Run(b, millions(messages)+" upserts as messages, published to folded",
		func() versus.Rate { return ours.round(messages, l.PID()) },
		versus.Peer{Name: "JetStream publish, async", Goal: versus.AtLeast(0.45),
			Round: func() versus.Rate { return theirs.round(messages, server.PID) }})

	l.holds(b, ours.documents)
	created, replaced := l.events(b, "orders", "DocumentCreated"), l.events(b, "orders", "DocumentReplaced")
	if created != ours.documents || created+replaced != ours.published || l.events(b, "orders", "MutationRejected") > 0 {
		b.Fatalf("of %d mutations %d created a document and %d replaced one, want %d", ours.published, created, replaced, ours.documents)
	}
	stream, err := theirs.js.Stream(context.Background(), "LAPSE_main_MUTATIONS")
	if err != nil {
		b.Fatal(err)
	}
	if stored := stream.CachedInfo().State.Msgs; stored != uint64(theirs.published) {
		b.Fatalf("the bare stream has %d of %d messages", stored, theirs.published)
	}
}

const mutations = "lapse.main.mutations."

// publisher publishes upserts over one connection.
type publisher struct {
	b                    *testing.B
	js                   jetstream.JetStream
	rnd                  *rand.Rand
	documents, published int
	failed               atomic.Pointer[error]
	until                func() // what ends a round, besides the last acknowledgement
}

func startPublisher(b *testing.B, url string) *publisher {
	b.Helper()
	p := &publisher{b: b, rnd: rand.New(rand.NewPCG(1, 2)), until: func() {}}
	p.js = versus.JetStream(b, versus.Connect(b, url), jetstream.WithPublishAsyncMaxPending(publishAhead),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { p.failed.Store(&err) }))
	return p
}

type upsert struct {
	subject string
	body    []byte
}

// upserts makes n messages, before the clock starts.
func (p *publisher) upserts(n int) []upsert {
	all := make([]upsert, n)
	for i := range all {
		document := p.documents
		if i%2 == 0 {
			p.documents++
		} else {
			document = p.rnd.IntN(p.documents)
		}
		all[i] = upsert{mutations + "document.upsert.orders." + versus.ID(document), versus.Document(document)}
	}
	return all
}

func (p *publisher) round(n, process int) versus.Rate {
	all := p.upserts(n)
	p.published += n
	clock := versus.Start(process)
	for _, m := range all {
		if _, err := p.js.PublishAsync(m.subject, m.body); err != nil {
			p.b.Fatal(err)
		}
	}
	<-p.js.PublishAsyncComplete()
	p.until()
	rate := clock.Stop(n)
	if err := p.failed.Load(); err != nil {
		p.b.Fatal(*err)
	}
	return rate
}

// judged returns when lapse has judged all that was published, and folded what
// came of it.
func (l *lapse) judged(b *testing.B) {
	b.Helper()
	for {
		status, err := l.client.Status(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if status.MutationsBehind == 0 {
			return
		}
		time.Sleep(foldedPoll)
	}
}

// events counts the events of a type about a collection in the log.
func (l *lapse) events(b *testing.B, collection, event string) int {
	b.Helper()
	js := versus.JetStream(b, versus.Connect(b, l.URL()))
	consumer, err := js.CreateConsumer(context.Background(), "LAPSE_main", jetstream.ConsumerConfig{
		FilterSubject:     "lapse.main.events." + collection + "." + event,
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: timeout,
	})
	if err != nil {
		b.Fatal(err)
	}
	return int(consumer.CachedInfo().NumPending)
}
