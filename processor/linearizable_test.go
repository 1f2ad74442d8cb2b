package processor_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/test/linear"
	"github.com/lapsedb/lapse/test/stress"
)

// asker returns the client function of a recorded history.
func asker(w *processortest.Wire, timeout time.Duration) linear.Ask {
	return func(tail, body string, headers ...string) (linear.Reply, error) {
		answer, err := w.Client.RequestMsg(processortest.Message("lapse.main.api."+tail, body, headers), timeout)
		if err != nil {
			return linear.Reply{}, err
		}
		r, err := processortest.ReadReply(answer)
		return linear.Reply{Code: r.Code, Seq: r.Seq, Body: r.Body}, err
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
	processortest.Bubble(t, func(w *processortest.Wire) {
		for i := range stress.Pick(10, 1000) {
			defaultTTL := []int64{-1, 1, 3}[random.IntN(3)]
			load := &linear.Load{
				Collection: fmt.Sprint("h", i), IDs: 10, Clients: 8, Operations: 50, TTLs: []int64{0, 0, -1, 1, 2, 3},
				Seed: random.Uint64(), Pause: aroundSeconds, Retry: 30 * time.Second,
				Dial: func(int) linear.Ask { return asker(w, 5*time.Second) },
			}
			w.Want(201, "collection.create."+load.Collection, fmt.Sprintf(`{"defaultTtl":%d}`, defaultTTL))
			operations, err := load.Run()
			w.Check(err)
			if err := linear.Check(operations, defaultTTL); err != nil {
				t.Fatalf("history %d of defaultTtl %d: %v", i, defaultTTL, err)
			}
			w.Want(204, "collection.delete."+load.Collection, "")
		}
	})
}
