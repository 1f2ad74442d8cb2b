package processor

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/processor/service"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/test/linear"
	"github.com/lapsedb/lapse/test/stress"
)

// asker returns the client function of a recorded history.
func (w *wire) asker(timeout time.Duration) linear.Ask {
	return func(tail, body string, headers ...string) (linear.Reply, error) {
		answer, err := w.client.RequestMsg(message("lapse.main.api."+tail, body, headers), timeout)
		if err != nil {
			return linear.Reply{}, err
		}
		r, err := readReply(answer)
		return linear.Reply{Code: r.code, Seq: r.seq, Body: r.body}, err
	}
}

// aroundSeconds pauses so that many operations fall just before, on and just after a
// second.
func aroundSeconds(r *rand.Rand) {
	pause := time.Duration(r.IntN(300)) * time.Millisecond
	if r.IntN(2) == 0 {
		next := time.Now().Add(pause).Truncate(time.Second).Add(time.Second)
		pause = time.Until(next) + time.Duration(r.IntN(5)-2)*time.Millisecond
	}
	time.Sleep(pause)
}

// TestLinearizable: concurrent operations of many clients on few expiring documents are
// linearizable. In a bubble the time of each is known to the millisecond.
func TestLinearizable(t *testing.T) {
	random := stress.Rand(t)
	inBubble(t, func(w *wire) {
		for i := range stress.Pick(25, 1000) {
			defaultTTL := []int64{-1, 1, 3}[random.IntN(3)]
			load := &linear.Load{
				Collection: fmt.Sprint("h", i), IDs: 10, Clients: 8, Operations: 50, TTLs: []int64{0, 0, -1, 1, 2, 3},
				Seed: random.Uint64(), Pause: aroundSeconds, Retry: 30 * time.Second,
				Dial: func(int) linear.Ask { return w.asker(5 * time.Second) },
			}
			w.want(201, "collection.create."+load.Collection, fmt.Sprintf(`{"defaultTtl":%d}`, defaultTTL))
			operations, err := load.Run()
			w.check(err)
			if err := linear.Check(operations, defaultTTL); err != nil {
				t.Fatalf("history %d of defaultTtl %d: %v", i, defaultTTL, err)
			}
			w.want(204, "collection.delete."+load.Collection, "")
		}
	})
}

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
	inBubble(t, func(w *wire) {
		const ttl = 15
		w.want(201, "collection.create.c", fmt.Sprintf(`{"defaultTtl":%d}`, ttl))
		ts := w.tsOf(w.want(201, "document.create.c.a", `{"n":1}`))
		w.want(201, "document.create.c.b", `{}`)
		sleepUntil(ts+ttl-1, 990)
		w.check(w.processor.writer.Log.Unlisten()) // acknowledgements are lost
		renewed := make(chan wireReply, 1)
		go func() { renewed <- w.ask(tail, body) }()
		sleepUntil(ts+ttl, 0)
		began := time.Now()
		w.want(404, "document.get.c.b", "")
		w.want(404, "document.get.c.c", "")
		if waited := time.Since(began); waited != 0 {
			t.Errorf("a document that has expired was gone after %s", waited)
		}
		w.want(504, "document.get.c.a", "")
		w.want(504, "batch.c", `{"operations":[{"op":"get","id":"a"}]}`)
		if waited := time.Since(began); waited != 2*answer.MinSeqTimeout {
			t.Errorf("two that nobody could answer took %s", waited)
		}
		time.Sleep(time.Until(time.Unix(ts+ttl-1, 990e6).Add(writer.AckTimeout - answer.MinSeqTimeout/2)))
		var wg sync.WaitGroup
		wg.Go(func() { w.want(200, "batch.c", `{"operations":[{"op":"get","id":"a"}]}`) })
		wg.Go(func() {
			if r := w.ask("document.get.c.a", ""); r.code != 200 || !strings.Contains(string(r.body), `"n":1`) {
				t.Errorf("the renewed document: %s", r)
			}
		})
		wg.Wait()
		if r := <-renewed; r.code != 200 {
			t.Errorf("the renewal: %s", r)
		}
		w.noRenewals()
	})
}

// noRenewals checks that no renewal is in flight.
func (w *wire) noRenewals() {
	w.t.Helper()
	ended, cancel := context.WithCancel(w.ctx())
	cancel()
	if w.processor.writer.Renewals.Settle(ended, 0, math.MaxInt64) != nil {
		w.t.Error("a renewal is in flight")
	}
}

// TestPolicyChangeInFlight: a document whose life a change of policy extends never reads as
// expired, even if the change is still in flight at the old deadline.
func TestPolicyChangeInFlight(t *testing.T) {
	for policy, code := range map[string]int{`{}`: 200, `{"defaultTtl":-1}`: 200, `{"defaultTtl":1000}`: 200, `{"defaultTtl":15}`: 404, `{"defaultTtl":5}`: 404} {
		inBubble(t, func(w *wire) {
			const ttl = 15
			w.want(201, "collection.create.c", fmt.Sprintf(`{"defaultTtl":%d}`, ttl))
			created := w.want(201, "document.create.c.a", `{}`)
			ts := w.tsOf(created)
			sleepUntil(ts+ttl-1, 990)
			w.check(w.processor.writer.Log.Unlisten()) // acknowledgements are lost
			replaced := make(chan wireReply, 1)
			go func() { replaced <- w.ask("collection.replace.c", policy) }()
			sleepUntil(ts+ttl, 0)
			w.want(404, "document.get.c.b", "")
			if r := w.ask("document.get.c.a", ""); r.code != 404 && code == 404 || r.code != 504 && code == 200 {
				t.Errorf("%s while it is changed to %s", r, policy)
			}
			time.Sleep(time.Until(time.Unix(ts+ttl-1, 990e6).Add(writer.AckTimeout - answer.MinSeqTimeout/2)))
			var wg sync.WaitGroup
			for tail, body := range map[string]string{"document.get.c.a": "", "batch.c": `{"operations":[{"op":"get","id":"a"}]}`} {
				wg.Go(func() {
					if r := w.ask(tail, body); code == 200 && !strings.Contains(string(r.body), `"_etag":"`) || tail == "document.get.c.a" && r.code != code {
						t.Errorf("%s: %s when it was changed to %s", tail, r, policy)
					}
				})
			}
			wg.Wait()
			if r := <-replaced; r.code != 200 {
				t.Errorf("the change: %s", r)
			}
			if r := w.want(code, "document.get.c.a", ""); code == 200 && string(r.body) != string(created.body) {
				t.Errorf("%s, and was %s", r, created)
			}
			w.noRenewals()
		})
	}
}

// TestCollectionReadsWaitForRenewal: operations over a whole collection wait for its
// renewals in flight, but not for those of other collections; status is answered anyway.
func TestCollectionReadsWaitForRenewal(t *testing.T) {
	for change, body := range map[string]string{"document.upsert.c.a": `{"n":1}`, "collection.replace.c": `{}`} {
		inBubble(t, func(w *wire) {
			const ttl = 15
			w.want(201, "collection.create.c", fmt.Sprintf(`{"defaultTtl":%d}`, ttl))
			w.want(201, "collection.create.other", "")
			ts := w.tsOf(w.want(201, "document.create.c.a", `{}`))
			sleepUntil(ts+ttl-1, 990)
			w.check(w.processor.writer.Log.Unlisten()) // acknowledgements are lost
			changed := make(chan wireReply, 1)
			go func() { changed <- w.ask(change, body) }()
			sleepUntil(ts+ttl, 0)
			began := time.Now()
			w.want(200, "query.other", `{}`)
			w.want(200, "collection.get.other", "")
			if waited := time.Since(began); waited > time.Second/2 {
				t.Errorf("what has nothing to do with it took %s", waited)
			}
			w.want(504, "query.c", `{}`)
			w.want(504, "query.c", `{"count":true}`)
			w.want(504, "collection.get.c", "")
			w.want(504, "forecast.c", "")
			w.want(200, "status", "")
			time.Sleep(time.Until(time.Unix(ts+ttl-1, 990e6).Add(writer.AckTimeout - service.StatusTimeout/4)))
			var wg sync.WaitGroup
			for _, tail := range []string{"query.c", "collection.get.c", "forecast.c", "status"} {
				wg.Go(func() {
					if r := w.ask(tail, ""); r.code != 200 || !strings.Contains(string(r.body), `"id":"a"`) && !strings.Contains(string(r.body), `"documents":1`) {
						t.Errorf("%s after %s: %s", tail, change, r)
					}
				})
			}
			wg.Wait()
			if r := <-changed; r.code != 200 {
				t.Errorf("the change: %s", r)
			}
			if logged := w.logs.String(); strings.Contains(logged, "level=ERROR") {
				t.Error(logged)
			}
		})
	}
}
