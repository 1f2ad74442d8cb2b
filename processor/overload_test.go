package processor

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/service"
	"github.com/lapsedb/lapse/test/stress"
)

// crowd sends requests without waiting for replies; each must get exactly one.
type crowd struct {
	w     *wire
	inbox string
	sent  int

	mu      sync.Mutex
	codes   map[int]int
	replies map[int]bool
}

func (w *wire) newCrowd() *crowd {
	w.t.Helper()
	c := &crowd{w: w, inbox: w.client.NewInbox() + ".", codes: make(map[int]int), replies: make(map[int]bool)}
	sub, err := w.client.Subscribe(c.inbox+"*", func(m *nats.Msg) {
		r, err := readReply(m)
		n, _ := strconv.Atoi(strings.TrimPrefix(m.Subject, c.inbox))
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil || c.replies[n] {
			w.t.Errorf("request %d: %v, answered before: %v", n, err, c.replies[n])
		}
		c.replies[n] = true
		c.codes[r.code]++
	})
	w.check(err)
	w.check(sub.SetPendingLimits(-1, -1))
	w.t.Cleanup(func() { _ = sub.Unsubscribe() })
	return c
}

func (c *crowd) ask(tail string, body []byte) {
	c.w.t.Helper()
	c.w.check(c.w.client.PublishRequest("lapse.main.api."+tail, c.inbox+strconv.Itoa(c.sent), body))
	c.sent++
}

// answered returns how many replies have each code.
func (c *crowd) answered() map[int]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[int]int)
	for code, n := range c.codes {
		all[code] = n
	}
	return all
}

// wait waits until every request has its reply.
func (c *crowd) wait() map[int]int {
	c.w.t.Helper()
	c.w.eventually(fmt.Sprintf("%d replies", c.sent), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.replies) == c.sent
	})
	return c.answered()
}

// TestFlood: if requests flood a busy writer, as many as the queue holds wait, and the
// rest are refused before any time passes.
func TestFlood(t *testing.T) {
	const places = 500
	requests := stress.Pick(2_500, 100_000)
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", "")
		release := w.holdWriter()
		began := time.Now()
		c := w.newCrowd()
		for n := range requests {
			c.ask(fmt.Sprintf("document.upsert.c.%d", n), []byte(`{"n":1}`))
		}
		synctest.Wait()
		if now := c.answered(); now[429] != requests-places || len(now) != 1 {
			t.Errorf("while the writer is busy %d places are taken of %d requests: %v", places, requests, now)
		}
		if passed := time.Since(began); passed != 0 {
			t.Errorf("they were refused after %s", passed)
		}
		w.want(404, "document.get.c.0", "")
		release()
		if all := c.wait(); all[201] != places || all[429] != requests-places {
			t.Errorf("at the end: %v", all)
		}
		w.want(200, "document.get.c.0", "", "X-Other", "not counted")
		w.idle()
	}, func(o *Options) { o.Queue = places })
}

// idle checks that no request bytes are held once everything is answered.
func (w *wire) idle() {
	w.t.Helper()
	release := w.holdWriter()
	defer release()
	if held := w.processor.service.Held.Load(); held != 0 {
		w.t.Errorf("%d bytes of requests are held", held)
	}
}

// TestFloodOfBytes: request bodies are bounded by bytes, and small requests still find
// room.
func TestFloodOfBytes(t *testing.T) {
	const size, fit = 1 << 20, service.MaxHeldBytes >> 20
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", "")
		w.want(201, "document.create.c.a", "{}")
		body := []byte(`{"x":"` + strings.Repeat("x", size) + `"}`)
		before := heap()
		release := w.holdWriter()
		began := time.Now()
		c := w.newCrowd()
		for n := range fit + 100 {
			op := []string{"document.create.nowhere." + strconv.Itoa(n), "document.patch.c.a", "batch.nowhere"}[n%3]
			if n%3 == 2 {
				body := fmt.Appendf(nil, `{"operations":[{"op":"create","id":"%d","body":{"x":"%s"}}]}`, n, body[6:size])
				c.ask(op, body)
				continue
			}
			c.ask(op, body)
		}
		synctest.Wait()
		now := c.answered()
		if n := now[429]; n < 100 || n > 102 || len(now) != 1 {
			t.Errorf("%d bodies of 1 MiB fit: %v", fit, now)
		}
		if held := w.processor.service.Held.Load(); held > service.MaxHeldBytes+8<<20 {
			t.Errorf("%d bytes are held", held)
		}
		// A body, and the document made of it.
		if more := heap() - before; more > 3*service.MaxHeldBytes {
			t.Errorf("the heap is %d MiB larger", more>>20)
		}
		w.want(200, "document.get.c.a", "")
		c.ask("document.delete.c.a", nil)
		synctest.Wait()
		if n := c.answered()[429]; n != now[429] {
			t.Error("a small mutation was refused while large ones wait")
		}
		if passed := time.Since(began); passed != 0 {
			t.Errorf("they were refused after %s", passed)
		}
		release()
		c.wait()
		w.idle()
	})
}

// occupy keeps workers of a lane busy, with one client for each, until let closes.
func occupy(l *service.Lane, workers int, let <-chan struct{}) {
	for n := range workers {
		r := &service.Request{To: fmt.Sprintf("_INBOX.client%d.x", n)}
		known, working := make(chan struct{}), make(chan struct{})
		l.Put(r, func() { close(known) }) // a client's first request counts as a newcomer's
		<-known
		l.Put(r, func() { close(working); <-let })
		<-working
	}
}

// TestFloodOfReads: a flood of one class of reads is refused at once beyond its queue,
// and delays neither a get nor a write.
func TestFloodOfReads(t *testing.T) {
	const places = 100
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", "")
		w.want(201, "document.create.c.a", "{}")
		s := w.processor.service
		for lane, tails := range map[*service.Lane][]string{
			s.Reads:   {"status", "collection.get.c", "collection.list", "history.c.a", "batch.c"},
			s.Gets:    {"document.get.c.unknown"},
			s.Queries: {"query.c"},
		} {
			began := time.Now()
			let := make(chan struct{})
			occupy(lane, 3, let)
			c := w.newCrowd()
			for n := range 10 * places {
				body := ""
				if tails[n%len(tails)] == "batch.c" {
					body = `{"operations":[{"op":"get","id":"a"}]}`
				}
				c.ask(tails[n%len(tails)], []byte(body))
			}
			synctest.Wait()
			if now := c.answered(); now[429] != 9*places || len(now) != 1 {
				t.Errorf("%v: %d wait of %d: %v", tails, places, c.sent, now)
			}
			w.want(200, "document.get.c.a", "")
			w.want(200, "document.upsert.c.a", `{"n":1}`)
			if passed := time.Since(began); passed != 0 {
				t.Errorf("%v: they were refused after %s", tails, passed)
			}
			close(let)
			if all := c.wait(); all[200]+all[404] != places {
				t.Errorf("%v: at the end: %v", tails, all)
			}
		}
		w.idle()
	}, func(o *Options) { o.Queue, o.QueryQueue, o.Workers, o.QueryWorkers = places, places, 2, 2 })
}

// TestMutationsQueuedWhileDown: however many mutations wait at the start, few of them are
// in memory at a time, and requests are answered before the last mutation.
func TestMutationsQueuedWhileDown(t *testing.T) {
	mutations := stress.Pick(10_000, 1_000_000)
	w := newWire(t)
	w.want(201, "collection.create.c", "")
	w.want(201, "document.create.c.a", "{}")
	w.stop()
	js, err := jetstream.New(w.client, jetstream.WithPublishAsyncMaxPending(4096))
	w.check(err)
	body := []byte(`{"text":"` + strings.Repeat("x", 200) + `"}`)
	for n := range mutations {
		if n%2000 == 0 {
			<-js.PublishAsyncComplete()
		}
		_, err := js.PublishAsync(fmt.Sprintf("lapse.main.mutations.document.upsert.c.%d", n%1000), body)
		w.check(err)
	}
	<-js.PublishAsyncComplete()
	before := heap()
	w.start()
	served, most := 0, int64(0)
	for {
		status, err := w.processor.Status(w.ctx())
		w.check(err)
		if status.MutationsBehind == 0 {
			break
		}
		w.want(200, "document.get.c.a", "")
		w.want(200, "document.upsert.c.a", "{}")
		if served++; served%50 == 0 {
			most = max(most, heap()-before)
		}
	}
	t.Logf("%d requests answered meanwhile, the heap %d MiB larger at most", served, most>>20)
	if most > 96<<20 {
		t.Errorf("the heap is %d MiB larger", most>>20)
	}
	if status, err := w.processor.Status(w.ctx()); err != nil || status.Documents != 1001 {
		t.Errorf("%+v, %v", status, err)
	}
}
