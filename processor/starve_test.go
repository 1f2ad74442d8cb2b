package processor

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/processor/service"
)

// TestOneClientStarvesNobody: while one client floods a class of reads that take
// long, reads of another one are answered before more than a few of the flood's, and
// whatever the flood has is answered, too.
func TestOneClientStarvesNobody(t *testing.T) {
	const places, workers, versions = 40, 2, 200
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", "")
		operations := strings.TrimSuffix(strings.Repeat(`{"op":"upsert","id":"a","body":{}},`, versions), ",")
		w.want(200, "batch.c", `{"operations":[`+operations+`]}`)
		w.want(201, "document.create.c.b", "{}")
		s := w.processor.service
		for _, flood := range []struct {
			lane       *service.Lane
			tail, body string
			reads      [][2]string
		}{
			{s.Looks, "history.c.a", fmt.Sprintf(`{"limit":%d}`, versions), [][2]string{
				{"collection.get.c", ""}, {"collection.list", ""}, {"status", ""}, {"history.c.b", ""},
				{"batch.c", `{"operations":[{"op":"get","id":"b"}]}`}, {"document.get.c.b", ""}, {"query.c", ""}, {"forecast.c", ""}}},
			{s.Queries, "query.c", `{"where":"params.n.all(a, params.n.all(b, a + b < 1))","params":{"n":[` + strings.Repeat("0,", 99) + `0]}}`, [][2]string{{"query.c", ""}, {"forecast.c", ""}, {"document.get.c.b", ""}, {"history.c.b", ""}}},
		} {
			let := make(chan struct{})
			occupy(flood.lane, workers+1, let) // until all of the flood is there
			c := w.newCrowd()
			for range 10 * places {
				c.ask(flood.tail, []byte(flood.body))
			}
			synctest.Wait()
			if now := c.answered(); now[429] != 9*places || len(now) != 1 || flood.lane.Len() != places {
				t.Fatalf("%s: %d wait of %d: %v", flood.tail, flood.lane.Len(), c.sent, now)
			}
			answered := func() int { return c.answered()[200] }
			close(let)
			var before []int // of the flood's, for each read
			for _, read := range flood.reads {
				began := answered()
				w.want(200, read[0], read[1])
				before = append(before, answered()-began)
			}
			// Without shares it would be all of the flood. A busy machine may run the flood's
			// workers and nobody else during one read.
			slices.Sort(before)
			if left := flood.lane.Len(); left == 0 || before[len(before)-2] > places/4 || before[len(before)-1] > places*3/4 {
				t.Errorf("%s: so many of the flood went before one read of another client: %d; %d are left", flood.tail, before, left)
			}
			// Where all places were taken, another client's read took one of them.
			if all := c.wait(); all[200] < places-len(flood.reads) || all[200]+all[429] != c.sent {
				t.Errorf("%s: at the end %v", flood.tail, all)
			}
		}
		w.idle()
	}, func(o *Options) { o.Queue, o.QueryQueue, o.Workers, o.QueryWorkers = places, places, workers, workers })
}

// TestReadsEndInTime: a read that waits is told so at its time, not when its turn
// comes, and the time counts from its arrival.
func TestReadsEndInTime(t *testing.T) {
	const queryTime = 3 * time.Second
	large := `{"operations":[{"op":"get","id":"` + strings.Repeat("x", service.LargeBody) + `"}]}`
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", "")
		s := w.processor.service
		let := make(chan struct{})
		for _, lane := range []*service.Lane{s.Gets, s.Looks, s.Bodies, s.Queries} {
			occupy(lane, s.Config.Workers+1, let)
		}
		began := time.Now()
		c := w.newCrowd()
		var left atomic.Int64
		ask := func(tail, body string, header nats.Header, limit time.Duration) {
			inbox := w.client.NewInbox()
			left.Add(1)
			sub, err := w.client.Subscribe(inbox, func(m *nats.Msg) {
				r, err := readReply(m)
				if passed := time.Since(began); err != nil || r.code != 504 || passed != limit || !strings.Contains(r.message, "time for the "+strings.Split(tail, ".c")[0]) {
					t.Errorf("%s: after %s %s, %v", tail, passed, r, err)
				}
				left.Add(-1)
			})
			w.check(err)
			defer func() { _ = sub.AutoUnsubscribe(1) }()
			w.check(w.client.PublishMsg(&nats.Msg{Subject: "lapse.main.api." + tail, Reply: inbox, Header: header, Data: []byte(body)}))
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
		// What waits for the log first has no more time.
		synctest.Wait()
		ask("document.get.c.unknown", "", nats.Header{"Lapse-Min-Seq": {fmt.Sprint(w.end() + 1)}}, service.RequestTimeout)
		time.Sleep(time.Second)
		w.want(201, "document.create.c.b", "{}") // needs no worker
		time.Sleep(service.RequestTimeout)
		if n := left.Load(); n != 0 {
			t.Errorf("%d were not answered", n)
		}
		if all := c.answered(); all[504] != c.sent {
			t.Errorf("%v of %d", all, c.sent)
		}
		close(let)
		w.want(404, "document.get.c.unknown", "")
		w.want(200, "status", "")
		w.idle()
	}, func(o *Options) {
		o.Workers, o.QueryWorkers, o.Query.Time = max(2, o.Workers), 2, queryTime
	})
}

// TestReadsForNobody: a read without a reply subject costs no worker.
func TestReadsForNobody(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", "")
		let := make(chan struct{})
		defer close(let)
		occupy(w.processor.service.Looks, 2, let)
		for range 10 {
			w.check(w.client.Publish("lapse.main.api.status", nil))
			w.check(w.client.Publish("lapse.main.api.history.c.a", nil))
		}
		synctest.Wait()
		if n := w.processor.service.Looks.Len(); n != 0 {
			t.Errorf("%d wait for a worker", n)
		}
	}, func(o *Options) { o.Workers = 1 })
}
