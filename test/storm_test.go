package test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// storm is a collection whose documents, named 0, 1, ..., are all due in the same second.
type storm struct {
	t        testing.TB
	due      int64    // deadline in seconds
	versions []uint64 // of the documents
}

// load writes the documents, and repeats a batch whose ttl counted from an unexpected
// second. On a machine that is too slow for that, some documents are due later.
func (x *storm) load(nc *nats.Conn) {
	const batch = 1000
	work := make(chan int)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for first := range work {
				for x.write(nc, first, min(first+batch, len(x.versions))) && time.Now().Unix() < x.due-1 {
				}
			}
		})
	}
	for first := 0; first < len(x.versions); first += batch {
		work <- first
	}
	close(work)
	wg.Wait()
}

// write upserts documents; again says that some are due in another second.
func (x *storm) write(nc *nats.Conn, first, end int) (again bool) {
	ttl := max(1, x.due-time.Now().Unix())
	var b strings.Builder
	for i := first; i < end; i++ {
		fmt.Fprintf(&b, `,{"op":"upsert","id":"%d","body":{"ttl":%d}}`, i, ttl)
	}
	a, err := tryAskFor(nc, "batch.storm", `{"operations":[`+b.String()[1:]+`]}`, patience)
	var reply struct {
		Results []struct {
			Body struct {
				TS   int64  `json:"_ts"`
				ETag string `json:"_etag"`
			} `json:"body"`
		} `json:"results"`
	}
	if err == nil {
		err = json.Unmarshal(a.body, &reply)
	}
	if err != nil || len(reply.Results) != end-first {
		x.t.Errorf("batch: %d %.200s (%v)", a.code, a.body, err)
		return false
	}
	for i, r := range reply.Results {
		if x.versions[first+i], err = strconv.ParseUint(r.Body.ETag, 10, 64); err != nil {
			x.t.Error(err)
		}
		again = again || r.Body.TS+ttl != x.due
	}
	return again
}

// watch queries documents until ctx ends, and checks that none is left from x.due on.
func (x *storm) watch(ctx context.Context, nc *nats.Conn, r *rand.Rand) (asked int) {
	for ; ctx.Err() == nil; asked++ {
		tail, body, none := fmt.Sprintf("document.get.storm.%d", r.IntN(len(x.versions))), "", ""
		switch r.IntN(4) {
		case 0:
			tail, body, none = "query.storm", fmt.Sprintf(`{"where":"doc.id >= '%d'","limit":3}`, r.IntN(len(x.versions))), `{"documents":[]}`
		case 1:
			tail, body, none = "query.storm", `{"count":true}`, `{"count":0}`
		case 2:
			tail, none = "collection.get.storm", `"documents":0,"bytes":0`
		}
		over := time.Now().Unix() >= x.due
		a, err := tryAskFor(nc, tail, body, time.Second)
		if err != nil || !over {
			time.Sleep(time.Millisecond) // the server was killed, or nothing is due yet
			continue
		}
		if none == "" && a.code != 404 && a.code < 500 || none != "" && a.code == 200 && !strings.Contains(string(a.body), none) {
			x.t.Errorf("all documents have expired, and %s %s is answered with %d %.300s", tail, body, a.code, a.body)
			return asked
		}
	}
	return asked
}

// expired checks all expiries of the log, without keeping them.
func (x *storm) expired(nc *nats.Conn) {
	t := x.t
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := js.OrderedConsumer(ctx, "LAPSE_main", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"lapse.main.events.storm.DocumentExpired", "lapse.main.events.end.CollectionCreated"}})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Stop()
	seen := make([]bool, len(x.versions))
	n := 0
	for ; ; n++ {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			t.Fatalf("after %d expiries: %v", n, err)
		}
		e, ok := eventOf(t, 0, m)
		if ok && e.Collection == "end" {
			break
		}
		id, err := strconv.Atoi(e.ID)
		switch {
		case err != nil || id >= len(seen):
			t.Fatalf("%q expired", e.ID)
		case seen[id]:
			t.Fatalf("%d expired twice", id)
		case e.Previous != x.versions[id]:
			t.Fatalf("version %d of %d expired, written was %d", e.Previous, id, x.versions[id])
		case e.Time.Unix() < e.Deadline || e.Deadline < x.due:
			t.Fatalf("%d expired at %s, due at %d", id, e.Time, e.Deadline)
		}
		seen[id] = true
	}
	if n != len(seen) {
		t.Errorf("%d of %d documents expired", n, len(seen))
	}
}

// TestExpiryStorm: very many documents are due in the same second, and the server is killed
// when 30 % and when 70 % of the expiries are in the log: each document expires once.
func TestExpiryStorm(t *testing.T) {
	documents := stress.Pick(10_000, 1_000_000)
	r := stress.Rand(t)
	s := harness.Serve(t, "--durability", "os")
	nc := dial(t, s)
	mustAsk(t, nc, 201, "collection.create.storm", `{"defaultTtl":-1}`)
	x := &storm{t: t, versions: make([]uint64, documents), due: time.Now().Unix() + int64(stress.Pick(4, 120))}
	x.load(nc)
	end := askStatus(t, nc).Seq
	early := time.Until(time.Unix(x.due, 0))

	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	asked := make([]int, 2)
	for i := range asked {
		nc, r := dial(t, s), rand.New(rand.NewPCG(r.Uint64(), 0))
		watching.Go(func() { asked[i] = x.watch(ctx, nc, r) })
	}
	for _, percent := range []int{30, 70} {
		at := uint64(0)
		goal := end + uint64(documents*percent/100)
		for deadline := time.Now().Add(early + 5*patience); at < goal; {
			if time.Now().After(deadline) {
				t.Fatalf("the log is at %d, %d %% would be %d", at, percent, goal)
			}
			a, err := tryAskFor(nc, "status", "", time.Second)
			var now status
			if err == nil && a.code == 200 && json.Unmarshal(a.body, &now) == nil {
				at = now.Seq
			}
			if time.Now().Unix() < x.due-1 {
				time.Sleep(100 * time.Millisecond)
			}
		}
		s.Kill()
		t.Logf("killed when %d %% of the expiries were in the log", min(100, (at-end)*100/uint64(documents)))
		s.Restart()
	}
	eventually(t, "everything expired", func() bool {
		a, err := tryAskFor(nc, "status", "", time.Second)
		var now status
		return err == nil && json.Unmarshal(a.body, &now) == nil && now.PendingExpiry+now.Overdue == 0
	})
	cancel()
	watching.Wait()
	mustAsk(t, nc, 201, "collection.create.end", "")
	x.expired(nc)
	s.Run("audit").OK()
	t.Logf("%d documents, loaded %s ahead; %v requests meanwhile", documents, early.Round(time.Second), asked)
	s.Stop()
}
