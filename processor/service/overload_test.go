package service_test

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

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/service"
	"github.com/lapsedb/lapse/test/stress"
)

// crowd sends requests without waiting for replies; each must get exactly one.
type crowd struct {
	w     *processortest.Wire
	inbox string
	sent  int

	mu      sync.Mutex
	codes   map[int]int
	replies map[int]bool
}

func newCrowd(w *processortest.Wire) *crowd {
	w.T.Helper()
	c := &crowd{w: w, inbox: w.Client.NewInbox() + ".", codes: make(map[int]int), replies: make(map[int]bool)}
	sub, err := w.Client.Subscribe(c.inbox+"*", func(m *nats.Msg) {
		r, err := processortest.ReadReply(m)
		n, _ := strconv.Atoi(strings.TrimPrefix(m.Subject, c.inbox))
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil || c.replies[n] {
			w.T.Errorf("request %d: %v, answered before: %v", n, err, c.replies[n])
		}
		c.replies[n] = true
		c.codes[r.Code]++
	})
	w.Check(err)
	w.Check(sub.SetPendingLimits(-1, -1))
	w.T.Cleanup(func() { _ = sub.Unsubscribe() })
	return c
}

func (c *crowd) ask(tail string, body []byte) {
	c.w.T.Helper()
	c.w.Check(c.w.Client.PublishRequest("lapse.main.api."+tail, c.inbox+strconv.Itoa(c.sent), body))
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
	c.w.T.Helper()
	c.w.Eventually(fmt.Sprintf("%d replies", c.sent), func() bool {
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
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", "")
		release := w.HoldWriter()
		began := time.Now()
		c := newCrowd(w)
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
		w.Want(404, "document.get.c.0", "")
		for tail, body := range map[string]string{"document.delete.c.a": "", "collection.delete.c": "", "collection.create.d": "",
			"batch.c": `{"operations":[{"op":"upsert","id":"a","body":{}}]}`} {
			w.Refused(429, "overloaded", tail, body)
		}
		release()
		if all := c.wait(); all[201] != places || all[429] != requests-places {
			t.Errorf("at the end: %v", all)
		}
		w.Want(200, "document.get.c.0", "", "X-Other", "not counted")
		w.Idle()
	}, func(o *processor.Options) { o.Queue = places })
}

// TestFloodOfBytes: request bodies are bounded by bytes, and small requests still find
// room.
func TestFloodOfBytes(t *testing.T) {
	const size, fit = 1 << 20, 16
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", "")
		w.Want(201, "document.create.c.a", "{}")
		body := []byte(`{"x":"` + strings.Repeat("x", size) + `"}`)
		before := stress.Heap()
		release := w.HoldWriter()
		began := time.Now()
		c := newCrowd(w)
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
		if held := w.Inside().Service.Held.Load(); held > (fit+8)<<20 {
			t.Errorf("%d bytes are held", held)
		}
		// A body, and the document made of it.
		if more := stress.Heap() - before; more > 3*fit<<20 {
			t.Errorf("the heap is %d MiB larger", more>>20)
		}
		w.Want(200, "document.get.c.a", "")
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
		w.Idle()
	}, func(o *processor.Options) { o.HeldBytes = fit << 20 })
}

// occupy keeps workers of a lane busy, with one client for each, until let closes.
func occupy(l *service.Lane, workers int, let <-chan struct{}) {
	for n := range workers {
		inbox := fmt.Sprintf("_INBOX.client%d.x", n)
		known, working := make(chan struct{}), make(chan struct{})
		l.Put(nil, inbox, func() { close(known) }) // a client's first request counts as a newcomer's
		<-known
		l.Put(nil, inbox, func() { close(working); <-let })
		<-working
	}
}

// TestMutationsQueuedWhileDown: however many mutations wait at the start, few of them are
// in memory at a time, and requests are answered before the last mutation.
func TestMutationsQueuedWhileDown(t *testing.T) {
	mutations := stress.Pick(3_000, 1_000_000)
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	w.Want(201, "document.create.c.a", "{}")
	w.Stop()
	js, err := jetstream.New(w.Client, jetstream.WithPublishAsyncMaxPending(4096))
	w.Check(err)
	body := []byte(`{"text":"` + strings.Repeat("x", 200) + `"}`)
	for n := range mutations {
		if n%2000 == 0 {
			<-js.PublishAsyncComplete()
		}
		_, err := js.PublishAsync(fmt.Sprintf("lapse.main.mutations.document.upsert.c.%d", n%1000), body)
		w.Check(err)
	}
	<-js.PublishAsyncComplete()
	before := stress.Heap()
	w.Start()
	served, most := 0, int64(0)
	for {
		status, err := w.Processor.Status(w.Ctx())
		w.Check(err)
		if status.MutationsBehind == 0 {
			break
		}
		w.Want(200, "document.get.c.a", "")
		w.Want(200, "document.upsert.c.a", "{}")
		if served++; served%50 == 0 {
			most = max(most, stress.Heap()-before)
		}
	}
	t.Logf("%d requests answered meanwhile, the heap %d MiB larger at most", served, most>>20)
	if most > 96<<20 {
		t.Errorf("the heap is %d MiB larger", most>>20)
	}
	if status, err := w.Processor.Status(w.Ctx()); err != nil || status.Documents != 1001 {
		t.Errorf("%+v, %v", status, err)
	}
}
