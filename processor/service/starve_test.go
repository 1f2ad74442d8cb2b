package service_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/service"
	"github.com/lapsedb/lapse/schema"
)

// slowReplies is the meter of a service that delays each reply of one operation. The
// delay is in the bubble's time, so a busy machine does not change the order.
type slowReplies struct {
	service.Meter
	operation int
}

func (s slowReplies) Answered(operation int, took time.Duration, header schema.Header) {
	if operation == s.operation {
		time.Sleep(50 * time.Millisecond)
	}
	s.Meter.Answered(operation, took, header)
}

// TestOneClientStarvesNobody: while one client floods a class of slow reads, another
// client's read is answered before more than a few of the flood, and neither a get nor a write
// waits. What does not fit the queue is refused at once, the queued flood is answered, too.
func TestOneClientStarvesNobody(t *testing.T) {
	const places, workers = 40, 2
	processortest.Bubble(t, func(w *processortest.Wire) {
		s := w.Inside().Service
		meter := s.Config.Meter
		w.Want(201, "collection.create.c", "")
		w.Want(201, "document.create.c.a", "{}")
		for _, flood := range []struct {
			lane  *service.Lane
			tail  string
			reads [][2]string
		}{
			{s.Reads(), "history.c.a", [][2]string{
				{"collection.get.c", ""}, {"collection.list", ""}, {"status", ""}, {"history.c.a", ""},
				{"batch.c", `{"operations":[{"op":"get","id":"a"}]}`}, {"document.get.c.a", ""}, {"query.c", ""}, {"forecast.c", ""}}},
			{s.Gets(), "document.get.c.unknown", [][2]string{{"document.get.c.unknown", ""}, {"document.get.c.a", ""}, {"status", ""}}},
			{s.Queries(), "query.c", [][2]string{{"query.c", ""}, {"forecast.c", ""}, {"document.get.c.a", ""}, {"history.c.a", ""}}},
		} {
			began, let := time.Now(), make(chan struct{})
			occupy(flood.lane, workers+1, let) // until the whole flood has arrived
			c := newCrowd(w)
			for range 10 * places {
				c.ask(flood.tail, nil)
			}
			synctest.Wait()
			if now := c.answered(); now[429] != 9*places || len(now) != 1 || flood.lane.Len() != places {
				t.Fatalf("%s: %d wait of %d: %v", flood.tail, flood.lane.Len(), c.sent, now)
			}
			w.Want(200, "document.get.c.a", "")
			w.Want(200, "document.upsert.c.a", `{"n":1}`)
			if passed := time.Since(began); passed != 0 {
				t.Errorf("%s: refused, and others served, after %s", flood.tail, passed)
			}
			operation, _ := schema.SplitOperation(flood.tail)
			s.Config.Meter = slowReplies{meter, schema.OperationIndex(operation)}
			answered := func() int { return c.answered()[200] + c.answered()[404] }
			close(let)
			for _, read := range flood.reads {
				// A read waits for the 429 of the read that it displaces and, if slow,
				// for its own reply. Without shares it would wait for the whole flood.
				first := answered()
				if r := w.Ask(read[0], read[1]); r.Code != 200 && (r.Code != 404 || !strings.Contains(read[0], "unknown")) {
					t.Errorf("%s: %s", read[0], r)
				}
				if before := answered() - first; before > 2*workers {
					t.Errorf("%s: %d of the flood went before %s of another client", flood.tail, before, read[0])
				}
			}
			if flood.lane.Len() == 0 {
				t.Errorf("%s: none of the flood is left", flood.tail)
			}
			// Another client's read displaces one of the flood if the queue is full.
			if all := c.wait(); all[200]+all[404] < places-len(flood.reads) || all[200]+all[404]+all[429] != c.sent {
				t.Errorf("%s: at the end %v", flood.tail, all)
			}
			s.Config.Meter = meter
		}
		w.Idle()
	}, func(o *processor.Options) {
		o.Queue, o.QueryQueue, o.Workers, o.QueryWorkers = places, places, workers, workers
	})
}

// TestReadsEndInTime: a waiting read gets a 504 at its time limit, counted from its
// arrival, not when its turn comes.
func TestReadsEndInTime(t *testing.T) {
	const queryTime = 3 * time.Second
	large := `{"operations":[{"op":"get","id":"` + strings.Repeat("x", service.LargeBody) + `"}]}`
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", "")
		s := w.Inside().Service
		let := make(chan struct{})
		for _, lane := range []*service.Lane{s.Gets(), s.Reads(), s.Large(), s.Queries()} {
			occupy(lane, s.Config.Workers+1, let)
		}
		began := time.Now()
		c := newCrowd(w)
		var unanswered atomic.Int64
		ask := func(tail, body string, header nats.Header, limit time.Duration) {
			inbox := w.Client.NewInbox()
			unanswered.Add(1)
			sub, err := w.Client.Subscribe(inbox, func(m *nats.Msg) {
				r, err := processortest.ReadReply(m)
				if passed := time.Since(began); err != nil || r.Code != 504 || passed != limit || !strings.Contains(r.Message, "time for the "+strings.Split(tail, ".c")[0]) {
					t.Errorf("%s: after %s %s, %v", tail, passed, r, err)
				}
				unanswered.Add(-1)
			})
			w.Check(err)
			defer func() { _ = sub.AutoUnsubscribe(1) }()
			w.Check(w.Client.PublishMsg(&nats.Msg{Subject: "lapse.main.api." + tail, Reply: inbox, Header: header, Data: []byte(body)}))
		}
		for _, tail := range []string{"document.get.c.unknown", "collection.get.c", "collection.list", "batch.c", "history.c.a", "status", "snapshot.list"} {
			ask(tail, "", nil, service.RequestTimeout)
		}
		ask("batch.c", large, nil, service.RequestTimeout)
		ask("query.c", "", nil, queryTime)
		ask("forecast.c", "", nil, queryTime)
		for range 50 {
			c.ask("status", nil)
		}
		// Waiting for the log counts, too.
		synctest.Wait()
		ask("document.get.c.unknown", "", nats.Header{"Lapse-Min-Seq": {fmt.Sprint(w.End() + 1)}}, service.RequestTimeout)
		time.Sleep(time.Second)
		w.Want(201, "document.create.c.b", "{}") // needs no worker
		time.Sleep(service.RequestTimeout)
		if n := unanswered.Load(); n != 0 {
			t.Errorf("%d were not answered", n)
		}
		if all := c.answered(); all[504] != c.sent {
			t.Errorf("%v of %d", all, c.sent)
		}
		close(let)
		w.Want(404, "document.get.c.unknown", "")
		w.Want(200, "status", "")
		w.Idle()
	}, func(o *processor.Options) {
		o.Workers, o.QueryWorkers, o.Query.Time = max(2, o.Workers), 2, queryTime
	})
}
