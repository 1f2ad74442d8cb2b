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

// TestRenewalInFlight: a document renewed before its deadline never reads as expired,
// even if the renewal is still in flight at the deadline: its reads wait. Reads of other
// documents do not.
func TestRenewalInFlight(t *testing.T) {
	for tail, body := range renewals {
		t.Run(tail, func(t *testing.T) { renewalInFlight(t, tail, body) })
	}
}

// renewals are requests that let document a of collection c outlive its deadline.
var renewals = map[string]string{
	"document.upsert.c.a": `{"n":1}`,
	"document.touch.c.a":  ``,
	"document.hold.c.a":   ``,
}

func renewalInFlight(t *testing.T, tail, body string) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		const ttl = 15
		w.Want(201, "collection.create.c", fmt.Sprintf(`{"defaultTtl":%d}`, ttl))
		ts := w.TS(w.Want(201, "document.create.c.a", `{"n":1}`))
		w.Want(201, "document.create.c.b", `{}`)
		processortest.SleepUntil(ts+ttl-1, 990)
		w.LoseAcks()
		renewed := make(chan processortest.Reply, 1)
		go func() { renewed <- w.Ask(tail, body) }()
		processortest.SleepUntil(ts+ttl, 0)
		began := time.Now()
		w.Want(404, "document.get.c.b", "")
		w.Want(404, "document.get.c.c", "")
		if waited := time.Since(began); waited != 0 {
			t.Errorf("a document that has expired was gone after %s", waited)
		}
		w.Want(504, "document.get.c.a", "")
		w.Want(504, "batch.c", `{"operations":[{"op":"get","id":"a"}]}`)
		if waited := time.Since(began); waited != 2*answer.MinSeqTimeout {
			t.Errorf("two that nobody could answer took %s", waited)
		}
		time.Sleep(time.Until(time.Unix(ts+ttl-1, 990e6).Add(ackTimeout - answer.MinSeqTimeout/2)))
		var wg sync.WaitGroup
		wg.Go(func() { w.Want(200, "batch.c", `{"operations":[{"op":"get","id":"a"}]}`) })
		wg.Go(func() {
			if r := w.Ask("document.get.c.a", ""); r.Code != 200 || !strings.Contains(string(r.Body), `"n":1`) {
				t.Errorf("the renewed document: %s", r)
			}
		})
		wg.Wait()
		if r := <-renewed; r.Code != 200 {
			t.Errorf("the renewal: %s", r)
		}
		noRenewals(w)
	})
}

// noRenewals checks that no renewal is in flight.
func noRenewals(w *processortest.Wire) {
	w.T.Helper()
	ended, cancel := context.WithCancel(w.Ctx())
	cancel()
	if w.Inside().Writer.Renewals.Settle(ended, 0, math.MaxInt64) != nil {
		w.T.Error("a renewal is in flight")
	}
}

// TestPolicyChangeInFlight: a document whose life a change of policy extends never reads as
// expired, even if the change is still in flight at the old deadline.
func TestPolicyChangeInFlight(t *testing.T) {
	for policy, code := range map[string]int{`{}`: 200, `{"defaultTtl":-1}`: 200, `{"defaultTtl":1000}`: 200, `{"defaultTtl":15}`: 404, `{"defaultTtl":5}`: 404} {
		processortest.Bubble(t, func(w *processortest.Wire) {
			const ttl = 15
			w.Want(201, "collection.create.c", fmt.Sprintf(`{"defaultTtl":%d}`, ttl))
			created := w.Want(201, "document.create.c.a", `{}`)
			ts := w.TS(created)
			processortest.SleepUntil(ts+ttl-1, 990)
			w.LoseAcks()
			replaced := make(chan processortest.Reply, 1)
			go func() { replaced <- w.Ask("collection.replace.c", policy) }()
			processortest.SleepUntil(ts+ttl, 0)
			w.Want(404, "document.get.c.b", "")
			if r := w.Ask("document.get.c.a", ""); r.Code != 404 && code == 404 || r.Code != 504 && code == 200 {
				t.Errorf("%s while it is changed to %s", r, policy)
			}
			time.Sleep(time.Until(time.Unix(ts+ttl-1, 990e6).Add(ackTimeout - answer.MinSeqTimeout/2)))
			var wg sync.WaitGroup
			for tail, body := range map[string]string{"document.get.c.a": "", "batch.c": `{"operations":[{"op":"get","id":"a"}]}`} {
				wg.Go(func() {
					if r := w.Ask(tail, body); code == 200 && !strings.Contains(string(r.Body), `"_etag":"`) || tail == "document.get.c.a" && r.Code != code {
						t.Errorf("%s: %s when it was changed to %s", tail, r, policy)
					}
				})
			}
			wg.Wait()
			if r := <-replaced; r.Code != 200 {
				t.Errorf("the change: %s", r)
			}
			if r := w.Want(code, "document.get.c.a", ""); code == 200 && string(r.Body) != string(created.Body) {
				t.Errorf("%s, and was %s", r, created)
			}
			noRenewals(w)
		})
	}
}

// TestCollectionReadsWaitForRenewal: operations over a whole collection wait for its
// renewals in flight, but not for those of other collections; status is answered anyway.
func TestCollectionReadsWaitForRenewal(t *testing.T) {
	for change, body := range map[string]string{"document.upsert.c.a": `{"n":1}`, "collection.replace.c": `{}`} {
		processortest.Bubble(t, func(w *processortest.Wire) {
			const ttl = 15
			w.Want(201, "collection.create.c", fmt.Sprintf(`{"defaultTtl":%d}`, ttl))
			w.Want(201, "collection.create.other", "")
			ts := w.TS(w.Want(201, "document.create.c.a", `{}`))
			processortest.SleepUntil(ts+ttl-1, 990)
			w.LoseAcks()
			changed := make(chan processortest.Reply, 1)
			go func() { changed <- w.Ask(change, body) }()
			processortest.SleepUntil(ts+ttl, 0)
			began := time.Now()
			w.Want(200, "query.other", `{}`)
			w.Want(200, "collection.get.other", "")
			if waited := time.Since(began); waited > time.Second/2 {
				t.Errorf("what has nothing to do with it took %s", waited)
			}
			w.Want(504, "query.c", `{}`)
			w.Want(504, "query.c", `{"count":true}`)
			w.Want(504, "collection.get.c", "")
			w.Want(504, "forecast.c", "")
			w.Want(200, "status", "")
			time.Sleep(time.Until(time.Unix(ts+ttl-1, 990e6).Add(ackTimeout - service.StatusTimeout/4)))
			var wg sync.WaitGroup
			for _, tail := range []string{"query.c", "collection.get.c", "forecast.c", "status"} {
				wg.Go(func() {
					if r := w.Ask(tail, ""); r.Code != 200 || !strings.Contains(string(r.Body), `"id":"a"`) && !strings.Contains(string(r.Body), `"documents":1`) {
						t.Errorf("%s after %s: %s", tail, change, r)
					}
				})
			}
			wg.Wait()
			if r := <-changed; r.Code != 200 {
				t.Errorf("the change: %s", r)
			}
			if logged := w.Logs.String(); strings.Contains(logged, "level=ERROR") {
				t.Error(logged)
			}
		})
	}
}
