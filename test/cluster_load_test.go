package test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/linear"
	"github.com/lapsedb/lapse/test/stress"
)

// hasty is the request timeout of the clients of a cluster.
const hasty = time.Second

// traffic is the load of clients on collections of their own during faults, with the
// replies that they got.
type traffic struct {
	t      *testing.T
	name   string // prefix of the collections
	seed   uint64
	dial   func(node int) *nats.Conn
	ending chan struct{}
	end    sync.Once
	wg     sync.WaitGroup

	history history
	feeder  feeder
	reads   [6]staleReader
}

// startTraffic creates the collections, and starts all clients.
func startTraffic(t *testing.T, name string, random *rand.Rand, dial func(node int) *nats.Conn) *traffic {
	t.Helper()
	x := &traffic{t: t, name: name, seed: random.Uint64(), dial: dial, ending: make(chan struct{})}
	x.history.defaultTTL = []int64{-1, 1, 2}[random.IntN(3)]
	x.create(name+"-history", x.history.defaultTTL)
	x.create(name+"-load", writerTTL)
	x.wg.Go(func() { x.history.run(x) })
	x.wg.Go(func() { x.feeder.run(x) })
	for i := range x.reads {
		x.wg.Go(func() { x.reads[i].run(x, i) })
	}
	t.Cleanup(x.stop)
	return x
}

// create retries until the collection is created.
func (x *traffic) create(collection string, ttl int64) {
	x.t.Helper()
	nc := x.dial(0)
	eventually(x.t, "collection "+collection, func() bool {
		a, err := tryAskWith(nc, "collection.create."+collection, fmt.Sprintf(`{"defaultTtl":%d,"warnBefore":1}`, ttl), hasty, "Nats-Msg-Id", collection)
		return err == nil && a.code == 201
	})
}

func (x *traffic) going() bool {
	select {
	case <-x.ending:
		return false
	default:
		return true
	}
}

// stop ends all clients and waits for their last replies.
func (x *traffic) stop() {
	x.end.Do(func() { close(x.ending) })
	x.wg.Wait()
}

// verify compares the replies with the log.
func (x *traffic) verify(events []event) {
	x.t.Helper()
	log := bySequence(events)
	x.history.verify(x, log)
	x.feeder.verify(x, events)
	seen := 0
	for i := range x.reads {
		x.reads[i].verify(x, log)
		seen += len(x.reads[i].seen)
	}
	x.t.Logf("%s: %d operations in the history; %d mutations; %d reads of any state", x.name, len(x.history.operations), len(x.feeder.taken), seen)
}

func bySequence(events []event) map[uint64]event {
	log := make(map[uint64]event)
	for _, e := range events {
		log[e.Seq] = e
	}
	return log
}

// nap sleeps for a random time of up to twice d, like an idle client; up to four times d
// in a short run, which has other tests beside it.
func nap(r *rand.Rand, d time.Duration) {
	time.Sleep(time.Duration(r.Int64N(int64(2 * d * stress.Pick[time.Duration](2, 1)))))
}

const historyIDs = 12

// history runs the clients of package linear. They read at the latest sequence that any
// of them was told, which makes reads linearizable on every processor. Only half of the
// changes ask for it: a change is decided by the latest state anyway.
type history struct {
	defaultTTL int64
	told       atomic.Uint64 // the highest Lapse-Seq
	operations []linear.Operation
}

func (h *history) run(x *traffic) {
	load := &linear.Load{
		Collection: x.name + "-history", IDs: historyIDs, Clients: 6, Operations: 100_000, TTLs: []int64{0, 0, -1, 1, 1, 2, 3},
		Seed: x.seed, Retry: patience, Late: true, Ending: x.ending,
		Pause: func(r *rand.Rand) { nap(r, 30*time.Millisecond) },
		Dial: func(client int) linear.Ask {
			nc := x.dial(client)
			return func(tail, body string, headers ...string) (linear.Reply, error) {
				return h.ask(x, nc, tail, body, headers)
			}
		},
	}
	var err error
	if h.operations, err = load.Run(); err != nil {
		x.t.Error(err)
	}
}

func (h *history) ask(x *traffic, nc *nats.Conn, tail, body string, headers []string) (linear.Reply, error) {
	read := strings.HasPrefix(tail, "document.get.") || strings.Contains(body, `"op":"get"`)
	least := uint64(0)
	if read || rand.IntN(2) == 0 {
		least = h.told.Load()
		headers = slices.Concat(headers, []string{"Lapse-Min-Seq", strconv.FormatUint(least, 10)})
	}
	a, err := tryAskWith(nc, tail, body, hasty, headers...)
	if errors.Is(err, nats.ErrNoResponders) {
		time.Sleep(20 * time.Millisecond)
		return linear.Reply{Code: 503, Unheard: true}, nil
	}
	if err == nil {
		raise(&h.told, a.seq)
	}
	if least == 0 {
		a.seq = 0
	} else if err == nil && a.seq < least && a.code < 500 && a.code != 429 {
		x.t.Errorf("%s was to be answered at %d, and was at %d: %d %s", tail, least, a.seq, a.code, a.body)
	}
	return linear.Reply{Code: a.code, Seq: a.seq, Body: a.body}, err
}

// raise sets a number to seq, unless it is higher.
func raise(to *atomic.Uint64, seq uint64) {
	for {
		now := to.Load()
		if seq <= now || to.CompareAndSwap(now, seq) {
			return
		}
	}
}

func (h *history) verify(x *traffic, log map[uint64]event) {
	x.t.Helper()
	written := make(map[int]linear.Result)
	for _, e := range log {
		if e.Collection != x.name+"-history" || e.Type != "DocumentCreated" && e.Type != "DocumentReplaced" {
			continue
		}
		r := linear.Result{Version: e.Seq, TS: e.Time.Unix()}
		if err := json.Unmarshal(e.Body, &r.Content); err != nil {
			x.t.Errorf("event %d: %s: %v", e.Seq, e.Body, err)
		}
		if before := written[r.N]; before.Version != 0 {
			x.t.Errorf("write %d of %s is in the log twice, at %d and %d", r.N, e.ID, before.Version, e.Seq)
		}
		written[r.N] = r
	}
	if err := linear.Check(linear.Settle(h.operations, written), h.defaultTTL); err != nil {
		x.t.Errorf("%s-history, defaultTtl %d: %v", x.name, h.defaultTTL, err)
	}
	for i := range h.operations {
		o := &h.operations[i]
		if o.Version == 0 {
			continue
		}
		var body linear.Content
		e := log[o.Version]
		if err := json.Unmarshal(e.Body, &body); err != nil || e.Collection != x.name+"-history" || e.ID != o.ID || body != o.Content {
			x.t.Errorf("the log has %s %s/%s %s at %d, where the client got %s", e.Type, e.Collection, e.ID, e.Body, e.Seq, o)
		}
	}
}

// numberIn returns the member n of a document, 0 if there is none.
func numberIn(document []byte) int {
	var d struct{ N int }
	_ = json.Unmarshal(document, &d)
	return d.N
}

// feeder publishes mutations to their stream, each until it is acknowledged. One that was
// sent more than once is in the stream once or more often, but is applied only once.
type feeder struct {
	taken map[int]uint64 // by n, the acknowledged sequence
}

func (f *feeder) id(n int) string { return fmt.Sprintf("m-%d", n%20) }

func (f *feeder) run(x *traffic) {
	f.taken = make(map[int]uint64)
	js, err := jetstream.New(x.dial(2), jetstream.WithDefaultTimeout(hasty))
	if err != nil {
		x.t.Error(err)
		return
	}
	random := rand.New(rand.NewPCG(x.seed, 2000))
	for n := 1; x.going(); n++ {
		nap(random, 30*time.Millisecond)
		subject := "lapse.main.mutations.document.upsert." + x.name + "-load." + f.id(n)
		if n%10 == 0 {
			subject = "lapse.main.mutations.document.create." + x.name + "-none." + f.id(n) // rejected
		}
		for began := time.Now(); ; nap(random, 30*time.Millisecond) {
			ack, err := js.Publish(x.t.Context(), subject, fmt.Appendf(nil, `{"n":%d}`, n), jetstream.WithMsgID(fmt.Sprint(x.name, n)), jetstream.WithRetryAttempts(0))
			if err == nil {
				f.taken[n] = ack.Sequence
				break
			}
			if time.Since(began) > patience {
				x.t.Errorf("mutation %d is not accepted: %v", n, err)
				return
			}
		}
	}
}

func (f *feeder) verify(x *traffic, events []event) {
	x.t.Helper()
	var last uint64
	judged := make(map[int]uint64) // by n, its first cause
	for _, e := range events {
		if e.Cause == "" {
			continue
		}
		var cause uint64
		if _, err := fmt.Sscanf(e.Cause, "mutations/%d", &cause); err != nil || cause <= last {
			x.t.Errorf("event %d has the cause %s after %d", e.Seq, e.Cause, last)
		}
		last = cause
		var rejected struct {
			Code     int
			Mutation struct {
				ID   string
				Body json.RawMessage
			}
		}
		id, n := e.ID, numberIn(e.Body)
		if e.Type == "MutationRejected" {
			if err := json.Unmarshal(e.Body, &rejected); err != nil {
				x.t.Errorf("event %d: %s: %v", e.Seq, e.Body, err)
			}
			id, n = rejected.Mutation.ID, numberIn(rejected.Mutation.Body)
		}
		if !strings.HasPrefix(e.Collection, x.name+"-") {
			continue
		}
		if id != f.id(n) || (n%10 == 0) != (rejected.Code == 404) {
			x.t.Errorf("event %d is the outcome of a mutation that nobody made: %s %s", e.Seq, e.Type, e.Body)
		}
		if before := judged[n]; before == 0 {
			judged[n] = cause
		} else if rejected.Code == 0 {
			x.t.Errorf("mutation %d was done twice, by the causes %d and %d", n, before, cause)
		}
	}
	for n, taken := range f.taken {
		if judged[n] == 0 || judged[n] > taken {
			x.t.Errorf("mutation %d was accepted as %d, and judged as %d", n, taken, judged[n])
		}
	}
}

// staleReader reads the documents of the history, at any state that ever was.
type staleReader struct {
	seen map[uint64]staleRead // by version
}

type staleRead struct {
	id string
	linear.Content
}

func (s *staleReader) run(x *traffic, reader int) {
	s.seen = make(map[uint64]staleRead)
	nc, random := x.dial(reader), rand.New(rand.NewPCG(x.seed, uint64(5000+reader)))
	for ; x.going(); nap(random, 30*time.Millisecond) {
		id := strconv.Itoa(random.IntN(historyIDs))
		sent := time.Now()
		a, err := tryAskFor(nc, "document.get."+x.name+"-history."+id, "", hasty)
		if err != nil || a.code != 200 {
			if err == nil && a.code != 404 && a.code < 500 && a.code != 429 {
				x.t.Errorf("get %s: %d %s", id, a.code, a.body)
			}
			continue
		}
		var document struct {
			linear.Content
			TS   int64  `json:"_ts"`
			Etag string `json:"_etag"`
		}
		if err := json.Unmarshal(a.body, &document); err != nil {
			x.t.Error(err)
		}
		version, _ := strconv.ParseUint(document.Etag, 10, 64)
		if ttl := cmp.Or(document.TTL, x.history.defaultTTL); ttl > 0 && sent.Unix() >= document.TS+ttl {
			x.t.Errorf("%s was there at %s, after its deadline %d: %s", id, sent, document.TS+ttl, a.body)
		}
		s.seen[version] = staleRead{id, document.Content}
	}
}

func (s *staleReader) verify(x *traffic, log map[uint64]event) {
	x.t.Helper()
	for version, want := range s.seen {
		e := log[version]
		got := staleRead{id: e.ID}
		if err := json.Unmarshal(e.Body, &got.Content); err != nil || e.Collection != x.name+"-history" || got != want {
			x.t.Errorf("somebody has read %v at version %d, which is %s %s/%s %s", want, version, e.Type, e.Collection, e.ID, e.Body)
		}
	}
}
