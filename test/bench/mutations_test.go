package bench

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/versus"
)

const (
	mutations = "lapse.main.mutations."
	// foldedPoll is how often it is asked whether everything is folded: what
	// lies between shows in no round of seconds.
	foldedPoll = 50 * time.Millisecond
)

// BenchmarkMutations publishes upserts as JetStream messages, until lapse has
// judged and folded the last of them, against publishing the same messages to a
// stream that does nothing with them. Half of them are new documents, half
// replace one.
func BenchmarkMutations(b *testing.B) {
	messages := versus.Size(1_000_000, 50_000)
	l := startLapse(b, processor.OS)
	l.create(b, "orders", client.DefaultTTL(day))
	ours := startUpserter(b, l.URL())

	server := versus.StartNATS(b, false)
	theirs := startUpserter(b, server.URL)
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
		func() versus.Rate { return ours.round(messages, l.PID(), func() { l.judged(b) }) },
		versus.Peer{Name: "JetStream publish, async", Goal: versus.AtLeast(0.45),
			Round: func() versus.Rate { return theirs.round(messages, server.PID, func() {}) }})

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

// mutator publishes upserts in rounds.
type mutator struct {
	*publisher
	documents, published int
	rnd                  *rand.Rand
}

func startUpserter(b *testing.B, url string) *mutator {
	b.Helper()
	return &mutator{publisher: publishTo(b, versus.Connect(b, url)), rnd: rand.New(rand.NewPCG(1, 2))}
}

// upserts makes n messages, before the clock starts.
func (u *mutator) upserts(n int) []*nats.Msg {
	all := make([]*nats.Msg, n)
	for i := range all {
		document := u.documents
		if i%2 == 0 {
			u.documents++
		} else {
			document = u.rnd.IntN(u.documents)
		}
		all[i] = &nats.Msg{Subject: mutations + "document.upsert.orders." + versus.ID(document), Data: versus.Document(document)}
	}
	u.published += n
	return all
}

// round publishes n upserts to a process and returns the rate when they are done
// there.
func (u *mutator) round(n, process int, done func()) versus.Rate {
	all := u.upserts(n)
	clock := versus.Start(process)
	for _, m := range all {
		u.publish(m)
	}
	u.wait()
	done()
	return clock.Stop(n)
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
