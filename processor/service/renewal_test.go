package service_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/service"
)

// ackTimeout is how long the writer waits for an acknowledgement.
const ackTimeout = 10 * time.Second

// changing is a change of collection c or its document a that is in flight at the second at
// which documents a and b expire: its acknowledgement was lost.
type changing struct {
	*processortest.Wire
	created processortest.Reply // of a
	asked   time.Time
	changed chan processortest.Reply
}

func inFlight(t *testing.T, tail, body string, test func(*changing)) {
	t.Helper()
	processortest.Bubble(t, func(w *processortest.Wire) {
		const ttl = 15
		w.Want(201, "collection.create.c", fmt.Sprintf(`{"defaultTtl":%d}`, ttl))
		w.Want(201, "collection.create.other", "")
		c := &changing{Wire: w, created: w.Want(201, "document.create.c.a", `{"n":1}`), changed: make(chan processortest.Reply, 1)}
		w.Want(201, "document.create.c.b", `{}`)
		expires := w.TS(c.created) + ttl
		processortest.SleepUntil(expires-1, 990)
		w.LoseAcks()
		c.asked = time.Now()
		go func() { c.changed <- w.Ask(tail, body) }()
		processortest.SleepUntil(expires, 0)
		test(c)
	})
}

// settles sends requests shortly before the writer finds the change in the log.
func (c *changing) settles(before time.Duration, check func(tail string, r processortest.Reply), requests map[string]string) {
	c.T.Helper()
	time.Sleep(time.Until(c.asked.Add(ackTimeout - before)))
	var wg sync.WaitGroup
	for tail, body := range requests {
		wg.Go(func() { check(tail, c.Ask(tail, body)) })
	}
	wg.Wait()
	if r := <-c.changed; r.Code != 200 {
		c.T.Errorf("the change: %s", r)
	}
	ended, cancel := context.WithCancel(c.Ctx())
	cancel()
	if c.Inside().Writer.Renewals.Settle(ended, 0, math.MaxInt64) != nil {
		c.T.Error("a renewal is in flight")
	}
}

// reads are two ways to read document a.
var reads = map[string]string{"document.get.c.a": "", "batch.c": `{"operations":[{"op":"get","id":"a"}]}`}

// TestRenewalInFlight: a document renewed before its deadline never reads as expired, even if
// the renewal is still in flight at the deadline: its reads wait. Reads of other documents do not.
func TestRenewalInFlight(t *testing.T) {
	for tail, body := range map[string]string{"document.upsert.c.a": `{"n":1}`, "document.touch.c.a": ``, "document.hold.c.a": ``} {
		inFlight(t, tail, body, func(c *changing) {
			began := time.Now()
			c.Want(404, "document.get.c.b", "")
			c.Want(404, "document.get.c.none", "")
			if waited := time.Since(began); waited != 0 {
				t.Errorf("a document that has expired was gone after %s", waited)
			}
			for tail, body := range reads {
				c.Want(504, tail, body)
			}
			if waited := time.Since(began); waited != 2*answer.MinSeqTimeout {
				t.Errorf("two that nobody could answer took %s", waited)
			}
			c.settles(answer.MinSeqTimeout/2, func(read string, r processortest.Reply) {
				if r.Code != 200 || !strings.Contains(string(r.Body), `"n":1`) {
					t.Errorf("%s, renewed by %s: %s", read, tail, r)
				}
			}, reads)
		})
	}
}

// TestPolicyChangeInFlight: a document whose life a change of policy extends never reads as
// expired, even if the change is still in flight at the old deadline.
func TestPolicyChangeInFlight(t *testing.T) {
	for policy, code := range map[string]int{`{}`: 200, `{"defaultTtl":1000}`: 200, `{"defaultTtl":15}`: 404, `{"defaultTtl":5}`: 404} {
		inFlight(t, "collection.replace.c", policy, func(c *changing) {
			c.Want(404, "document.get.c.none", "")
			if r := c.Ask("document.get.c.a", ""); r.Code != 404 && code == 404 || r.Code != 504 && code == 200 {
				t.Errorf("%s while it is changed to %s", r, policy)
			}
			c.settles(answer.MinSeqTimeout/2, func(tail string, r processortest.Reply) {
				if code == 200 && !strings.Contains(string(r.Body), `"_etag":"`) || tail == "document.get.c.a" && r.Code != code {
					t.Errorf("%s: %s when it was changed to %s", tail, r, policy)
				}
			}, reads)
			if r := c.Want(code, "document.get.c.a", ""); code == 200 && string(r.Body) != string(c.created.Body) {
				t.Errorf("%s, and was %s", r, c.created)
			}
		})
	}
}

// TestCollectionReadsWaitForRenewal: operations over a whole collection wait for its
// renewals in flight, but not for those of other collections; status is answered anyway.
func TestCollectionReadsWaitForRenewal(t *testing.T) {
	for change, documents := range map[string]string{"document.upsert.c.a": `"documents":1`, "collection.replace.c": `"documents":2`} {
		inFlight(t, change, `{}`, func(c *changing) {
			began := time.Now()
			c.Want(200, "query.other", `{}`)
			c.Want(200, "collection.get.other", "")
			if waited := time.Since(began); waited > time.Second/2 {
				t.Errorf("what has nothing to do with it took %s", waited)
			}
			for _, read := range [][2]string{{"query.c", ``}, {"query.c", `{"count":true}`}, {"collection.get.c", ""}, {"forecast.c", ""}} {
				c.Want(504, read[0], read[1])
			}
			c.Want(200, "status", "")
			c.settles(service.StatusTimeout/4, func(tail string, r processortest.Reply) {
				if r.Code != 200 || !strings.Contains(string(r.Body), `"id":"a"`) && !strings.Contains(string(r.Body), documents) {
					t.Errorf("%s after %s: %s", tail, change, r)
				}
			}, map[string]string{"query.c": "", "collection.get.c": "", "forecast.c": "", "status": ""})
			if logged := c.Logs.String(); strings.Contains(logged, "level=ERROR") {
				t.Error(logged)
			}
		})
	}
}
