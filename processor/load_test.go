package processor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// fate is the outcome of a write as its client knows it.
type fate int

const (
	unsure fate = iota // may or may not be applied
	done
	refused
)

// load writes at random, and knows what must be in the log.
type load struct {
	*processortest.Wire
	random *rand.Rand
	pause  time.Duration
	wg     sync.WaitGroup
	ending atomic.Bool

	longest   time.Duration // until a write succeeded again
	longestOf string

	mu    sync.Mutex
	fates map[string]fate
}

func newLoad(w *processortest.Wire, random *rand.Rand, pause time.Duration) *load {
	return &load{Wire: w, random: random, pause: pause, fates: make(map[string]fate)}
}

// start starts concurrent writers to the collection load, numbered from first on. Each
// pauses for up to pause before a write.
func (l *load) start(first, writers int) {
	l.ending.Store(false)
	for i := range writers {
		random := rand.New(rand.NewPCG(l.random.Uint64(), 0))
		l.wg.Go(func() { l.request(first+i, random) })
	}
}

// end ends the load.
func (l *load) end() {
	l.ending.Store(true)
	l.wg.Wait()
}

// probe waits until a write succeeds again, for recovery at most.
func (l *load) probe(fault string, i int) {
	l.T.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		r, err := asker(l.Wire, time.Second)("document.upsert.load.probe", fmt.Sprintf(`{"n":"probe%d"}`, i))
		waited := time.Since(began)
		if err == nil && r.Code < 300 {
			if waited > l.longest {
				l.longest, l.longestOf = waited, fault
			}
			return
		}
		if waited > recovery {
			l.T.Fatalf("%s: no write within %s\n%s", fault, waited, l.Wire.Logs)
		}
	}
}

// finish ends the load and verifies the log.
func (l *load) finish() {
	l.T.Helper()
	l.end()
	l.verify()
	l.T.Logf("the longest was %s: %s", l.longest, l.longestOf)
}

func (l *load) note(n string, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fates[n] = f
}

// request writes; half of the writes have a Nats-Msg-Id and are retried until they
// succeed.
func (l *load) request(writer int, random *rand.Rand) {
	ask := asker(l.Wire, 2*time.Second)
	for i := 0; !l.ending.Load(); i++ {
		time.Sleep(time.Duration(random.Int64N(int64(l.pause))))
		n := fmt.Sprintf("%d-%d", writer, i)
		tail, body := fmt.Sprintf("document.upsert.load.%d", random.IntN(20)), fmt.Sprintf(`{"n":%q}`, n)
		var headers []string
		switch random.IntN(4) {
		case 0, 1:
			headers = []string{"Nats-Msg-Id", n}
		case 2:
			tail, body = "batch.load", fmt.Sprintf(`{"atomic":%t,"operations":[{"op":"upsert","id":"pair%d","body":{}},{"op":"upsert","id":"%d","body":{"n":%q}}]}`, random.IntN(2) == 0, writer, random.IntN(20), n)
		}
		f := refused
		for first := time.Now(); ; time.Sleep(100 * time.Millisecond) {
			r, err := ask(tail, body, headers...)
			switch {
			case err == nil && r.Code < 300:
				f = done
			case err != nil || r.Code == 504:
				f = unsure
			case r.Code != 503 && r.Code != 429:
				l.T.Errorf("write %s: %d %s", n, r.Code, r.Body)
			}
			if f == done || headers == nil || l.ending.Load() {
				break
			}
			if time.Since(first) > 110*time.Second { // ids are remembered for two minutes
				l.T.Errorf("write %s came to nothing in %s", n, time.Since(first))
				break
			}
		}
		l.note(n, f)
	}
}

// publish publishes mutations, and retries each until the stream acknowledges it.
func (l *load) publish(random *rand.Rand) {
	js, err := jetstream.New(l.Client)
	if err != nil {
		l.T.Error(err)
		return
	}
	for i := 0; !l.ending.Load(); i++ {
		time.Sleep(time.Duration(random.Int64N(int64(l.pause))))
		n := fmt.Sprintf("m-%d", i)
		m := nats.NewMsg(fmt.Sprintf("lapse.main.mutations.document.upsert.load.%d", random.IntN(20)))
		m.Data = fmt.Appendf(nil, `{"n":%q}`, n)
		m.Header.Set("Nats-Msg-Id", n)
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			_, err := js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(1))
			cancel()
			if err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		l.note(n, done)
	}
}

// verify compares the log with the clients' knowledge, and the projection with one folded
// from scratch.
func (l *load) verify() {
	l.T.Helper()
	mutations := l.Stream("LAPSE_main_MUTATIONS").CachedInfo().State.LastSeq
	l.Judged(mutations)
	found := make(map[string]int)
	place := make(map[string]int) // by writer, the number of its last write
	var cause uint64
	counts := make(map[schema.EventType]int)
	for _, e := range l.VerifyLog(processortest.Patience) {
		counts[e.Type]++
		cause = max(cause, e.Cause)
		if !e.Type.OnDocument() || e.Type == schema.DocumentExpired {
			continue
		}
		var document struct{ N string }
		l.Check(json.Unmarshal(e.Body, &document))
		found[document.N]++
		if writer, number, ok := strings.Cut(document.N, "-"); ok && l.fates[document.N] == done {
			n, err := strconv.Atoi(number)
			l.Check(err)
			if n < place[writer] {
				l.T.Errorf("event %d: write %s comes after %s-%d, of which it was told before", e.Seq, document.N, writer, place[writer])
			}
			place[writer] = n
		}
	}
	if cause != mutations || counts[schema.NoEvent] > 0 {
		l.T.Errorf("mutations were judged up to %d of %d, %d messages are foreign", cause, mutations, counts[schema.NoEvent])
	}
	told := make(map[fate]int)
	for n, f := range l.fates {
		told[f]++
		if times := found[n]; times > 1 || f == done && times == 0 || f == refused && times > 0 {
			l.T.Errorf("write %s is in the log %d times; told %d", n, times, f)
		}
	}
	l.T.Logf("%d done, %d unsure, %d refused; the log has %v", told[done], told[unsure], told[refused], counts)
	if told[done] == 0 {
		l.T.Error("nothing was done")
	}
	before, end := l.Content(), l.End()
	l.Stop()
	l.RemoveProjection()
	l.Start()
	if after := l.Content(); after != before && l.End() == end+1 { // only a WriterStarted, no expiry
		l.T.Errorf("folded again it is\n%s, before\n%s", after, before)
	}
}
