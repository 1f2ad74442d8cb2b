package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/versus"
)

const (
	mutations = "lapse.main.mutations."
	// foldedPoll is the interval at which judged polls the status, too short to
	// matter in a round of seconds.
	foldedPoll = 50 * time.Millisecond
)

// BenchmarkMutations publishes upserts as JetStream messages, until lapse has judged and
// folded the last of them. The peer publishes the same messages to a stream without
// lapse: through two accounts, as to lapse, which shows the cost of lapse itself, and in
// one. Half of the upserts create a document, half replace one.
func BenchmarkMutations(b *testing.B) {
	messages := versus.Size(1_000_000, 50_000)
	l := startLapse(b, processor.OS)
	l.create(b, "orders", client.DefaultTTL(day))
	ours := startUpserter(b, l.URL())

	border := versus.StartRole(b, twoAccounts, b.TempDir())
	one := versus.StartNATS(b, false)
	beside := []*mutator{startUpserter(b, border.URL), startUpserter(b, one.URL)}
	streams := []jetstream.Stream{
		mutationsStream(b, harness.JetStream(b, versus.Connect(b, border.URL, nats.UserInfo(storing, storing)))),
		mutationsStream(b, beside[1].js),
	}
	publish := func(peer int, server *versus.Process) versus.Side {
		return func() versus.Rate { return beside[peer].round(messages, server.PID, func() {}) }
	}
	versus.Run(b, millions(messages)+" upserts as messages, published to folded",
		func() versus.Rate { return ours.round(messages, l.PID(), func() { l.judged(b) }) },
		versus.Peer{Name: "JetStream publish through two accounts, async", Goal: versus.AtLeast(0.45), Round: publish(0, border)},
		versus.Peer{Name: "JetStream publish, async", Round: publish(1, one)})

	l.holds(b, ours.documents)
	created, replaced := l.events(b, "orders", "DocumentCreated"), l.events(b, "orders", "DocumentReplaced")
	if created != ours.documents || created+replaced != ours.published || l.events(b, "orders", "MutationRejected") > 0 {
		b.Fatalf("of %d mutations %d created a document and %d replaced one, want %d", ours.published, created, replaced, ours.documents)
	}
	for i, stream := range streams {
		info, err := stream.Info(b.Context())
		check(b, err)
		if stored := info.State.Msgs; stored != uint64(beside[i].published) {
			b.Fatalf("a bare stream has %d of %d messages", stored, beside[i].published)
		}
	}
}

// mutationsStream creates a stream for mutations as lapse configures it.
func mutationsStream(b *testing.B, js jetstream.JetStream) jetstream.Stream {
	b.Helper()
	stream, err := js.CreateStream(b.Context(), jetstream.StreamConfig{
		Name:       "LAPSE_main_MUTATIONS",
		Subjects:   []string{mutations + ">"},
		Storage:    jetstream.FileStorage,
		DenyDelete: true,
		Replicas:   1,
		Duplicates: 100 * time.Millisecond,
	})
	check(b, err)
	return stream
}

const (
	// twoAccounts is the role of a NATS server whose clients publish into the account
	// of the user storing.
	twoAccounts = "accounts"
	storing     = "storing"
)

// serveTwoAccounts runs the server of role twoAccounts, with its store in dir.
func serveTwoAccounts(dir string, ready func(url string)) error {
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
		listen: "127.0.0.1:-1"
		jetstream { store_dir: %q }
		no_auth_user: client
		accounts {
			STORE { jetstream: enabled, users: [{user: %s, password: %[2]s}], exports: [{service: "%[3]s>"}] }
			CLIENTS { users: [{user: client, password: client}], imports: [{service: {account: STORE, subject: "%[3]s>"}}] }
		}`, dir, storing, mutations), 0o600); err != nil {
		return err
	}
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		return err
	}
	return versus.Serve(options, func(url string) error { ready(url); return nil })
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

// round publishes n upserts and returns the rate until done returns. process is the
// server whose processor time counts.
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

// judged waits until lapse has judged all published mutations and folded the resulting
// events.
func (l *lapse) judged(b *testing.B) {
	b.Helper()
	for {
		status, err := l.client.Status(context.Background())
		check(b, err)
		if status.MutationsBehind == 0 {
			return
		}
		time.Sleep(foldedPoll)
	}
}

// events counts the events of a type about a collection in the log.
func (l *lapse) events(b *testing.B, collection, event string) int {
	b.Helper()
	js := harness.JetStream(b, versus.Connect(b, l.URL()))
	consumer, err := js.CreateConsumer(context.Background(), "LAPSE_main", jetstream.ConsumerConfig{
		FilterSubject:     "lapse.main.events." + collection + "." + event,
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: timeout,
	})
	check(b, err)
	return int(consumer.CachedInfo().NumPending)
}
