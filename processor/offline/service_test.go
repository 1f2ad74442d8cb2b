package offline_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapsedb/lapse/processor/offline"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/test/stress"
)

// TestLocalIsTheService: a Local and a processor behind NATS, asked the same at the same
// times, give the same replies and the same log.
func TestLocalIsTheService(t *testing.T) {
	for range stress.Pick(2, 40) {
		random := stress.Rand(t)
		processortest.Bubble(t, func(w *processortest.Wire) {
			local, err := offline.NewLocal(time.Now().UnixMilli())
			w.Check(err)
			defer func() { w.Check(local.Close()) }()
			_, err = local.Adopt(time.Now().UnixMilli(), w.Everything()) // a WriterStarted
			w.Check(err)
			for i := range stress.Pick(400, 4000) {
				synctest.Wait() // all due work is done
				if d := draw(random, 0, 0, 0, 1, 250, 999, 1000, 3000, 40_000, 200_000); d > 0 {
					time.Sleep(time.Duration(d) * time.Millisecond)
					synctest.Wait()
				}
				w.Check(local.Advance(time.Now().UnixMilli()))
				r := drawRequest(random)
				if r.submit {
					// JetStream deduplicates a Nats-Msg-Id within this time.
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					w.Check(local.Advance(time.Now().UnixMilli()))
					w.Judged(w.Publish(r.tail, r.body, r.headers...))
					_, err := local.Submit(r.tail, r.header(), []byte(r.body))
					w.Check(err)
					continue
				}
				want := w.Ask(r.tail, r.body, r.headers...)
				o, err := local.Request(r.tail, r.header(), []byte(r.body))
				w.Check(err)
				got := processortest.Reply{Code: o.Code, Seq: o.Seq, Body: o.Body}
				if o.Fault != nil {
					got.Error, got.Message, got.Body = o.Fault.Name, o.Fault.Message, nil
					want.Body = nil
				}
				if plain(got) != plain(want) {
					w.T.Fatalf("request %d, %+v at %d\nlocal:   %d %s\nservice: %d %s", i, r, time.Now().UnixMilli(), got.Seq, got, want.Seq, want)
				}
			}
			synctest.Wait()
			w.Check(local.Advance(time.Now().UnixMilli()))
			if got, want := lines(local.Log()), lines(w.Everything()); got != want {
				w.T.Fatalf("local:\n%s\nservice:\n%s", got, want)
			}
			if got, want := local.Digest(), w.Inside().Store.Digest().String(); got != want {
				w.T.Fatalf("digest %s, of the service %s", got, want)
			}
		})
	}
}
