package writer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/lapsedb/lapse/processor/clock"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// bench is a term whose log is in memory and loses what the test says.
type bench struct {
	*Term
	t   testing.TB
	log []*schema.Event
}

type quietMeter struct{}

func (quietMeter) Beat(int)                                               {}
func (quietMeter) Replied(*schema.Mutation, *schema.Batch, *schema.Error) {}
func (quietMeter) Stored(*projections.Fact)                               {}
func (quietMeter) Late(int64)                                             {}
func (quietMeter) Acknowledged(int, bool, bool, time.Duration)            {}
func (quietMeter) Folded(time.Duration)                                   {}

func newBench(t testing.TB) *bench {
	store, err := projections.Open("projection", projections.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	events := observe.EventListener(nil).EnsureDefaults()
	w := New(Config{Meter: quietMeter{}, Queue: 1 << 10, Synced: true, MaxDowntime: time.Hour, Events: events}, &eventlog.Log{}, store,
		clock.New(clock.Config{Clock: clock.GoClock(), MaxStep: time.Minute, MaxDowntime: time.Hour, Events: events}, 0, true))
	b := &bench{Term: w.newTerm(), t: t}
	if b.machine, err = machine.NewMachine(store); err != nil {
		t.Fatal(err)
	}
	b.machine.History = b.history
	w.Term.Store(b.Term)
	b.searched = w.Clock.Millis()
	return b
}

func (b *bench) must(err error) {
	if err != nil {
		b.t.Fatal(err)
	}
}

// round runs a turn and lets the log accept its events, n at most, or all if n is negative.
// Unless it acknowledges them, the term recovers.
func (b *bench) round(n int, acknowledges bool) {
	b.groups = []group{{}} // nothing is sent
	b.must(b.turn())
	b.append()
	all := b.machine.Taken()
	if n < 0 || n > len(all) {
		n = len(all)
	}
	b.unsent, b.groups = nil, nil
	for _, fact := range all[:n] {
		b.log = append(b.log, fact.Event)
	}
	if acknowledges {
		if n > 0 {
			b.acked = all[n-1].Seq
		}
		b.must(b.commit())
		return
	}
	// As recover does, after it has read the log to its end.
	acked := b.acked
	for _, fact := range all[:n] {
		acked = fact.Seq
		b.must(b.store.Fold([]projections.Fact{{Event: fact.Event}}))
	}
	b.settle(acked)
	b.must(b.rollBack())
}

// propose queues a mutation as a client does.
func (b *bench) propose(tail, body string, done func(machine.Outcome)) {
	b.Requests.Add(1)
	mu := schema.NewMutation(tail, []byte(body))
	if !b.Submit(&Proposal{Mutation: mu, Done: done}) {
		b.t.Fatal("the queue is full")
	}
}

func (b *bench) expired() (n int) {
	for _, e := range b.log {
		if e.Type == schema.DocumentExpired {
			n++
		}
	}
	return n
}

// storm is what happens in one round of TestDueExpires.
type storm struct {
	Creates      int
	Published    int // mutations of the stream
	Reads        int // requests that make no event
	Pause        time.Duration
	Stored       int // events that the log accepts, all if negative
	Acknowledged bool
}

func storms() *rapid.Generator[[]storm] {
	ms := func(most int) *rapid.Generator[time.Duration] {
		return rapid.Map(rapid.IntRange(0, most), func(n int) time.Duration { return time.Duration(n) * time.Millisecond })
	}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) storm {
		return storm{rapid.IntRange(0, 60).Draw(t, "creates"), rapid.IntRange(0, 3).Draw(t, "published"), rapid.IntRange(0, 100).Draw(t, "reads"), ms(700).Draw(t, "pause"),
			rapid.IntRange(-1, 20).Draw(t, "stored"), rapid.Bool().Draw(t, "acknowledged")}
	}), 1, 40)
}

// TestDueExpires: whatever appends and acknowledgements are lost, and whatever clients ask
// for, what is due is soon in the log, once for each version; every request is answered,
// and each mutation of the stream judged once, in order.
func TestDueExpires(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rounds := storms().Draw(r, "rounds")
		var why []string
		synctest.Test(t, func(t *testing.T) { why = dueExpires(t, rounds) })
		if len(why) > 0 {
			r.Fatal(why)
		}
	})
}

func dueExpires(t *testing.T, rounds []storm) (why []string) {
	b := newBench(t)
	defer b.store.Close()
	asked, answered, created := 0, 0, 0
	var published, judged uint64
	ask := func(tail, body string) {
		asked++
		b.propose(tail, body, func(o machine.Outcome) {
			if answered++; o.Code == 201 {
				created++
			}
		})
	}
	ask("collection.create.c", `{"defaultTtl":-1}`)
	b.round(-1, true)
	created = 0
	for i, r := range rounds {
		for range r.Creates {
			ask(fmt.Sprintf("document.create.c.d%d", asked), fmt.Sprintf(`{"ttl":%d}`, 1+i%3))
		}
		for range r.Published {
			published++
			tail, body := fmt.Sprintf("document.upsert.c.p%d", published%5), `{}`
			if published%3 == 0 {
				tail, body = "collection.replace.c", fmt.Sprintf(`{"defaultTtl":-1,"warnBefore":%d}`, published)
			}
			b.Mutations <- schema.PublishedMutation(published, tail, nil, []byte(body))
		}
		ask("document.touch.c.none", "")
		b.Requests.Add(uint64(r.Reads))
		time.Sleep(r.Pause)
		b.round(r.Stored, r.Acknowledged)
	}
	for range 10 + published { // a third are changes, which take two turns
		b.round(-1, true)
	}
	time.Sleep(4 * time.Second) // all are due
	for range 4 + asked/leastSlice {
		b.Requests.Add(100)
		ask("document.touch.c.none", "")
		time.Sleep(mostRest)
		b.round(-1, true)
	}
	for _, e := range b.log {
		if e.Cause != 0 {
			if judged++; e.Cause != judged {
				why = append(why, fmt.Sprintf("mutation %d is judged where %d is due", e.Cause, judged))
			}
		}
	}
	if judged != published {
		why = append(why, fmt.Sprintf("%d of %d mutations are judged", judged, published))
	}
	if answered != asked {
		why = append(why, fmt.Sprintf("%d of %d requests are answered", answered, asked))
	}
	if n := b.expired(); n != created {
		why = append(why, fmt.Sprintf("%d of %d documents expired", n, created))
	}
	return why
}
