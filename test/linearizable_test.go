package test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/linear"
	"github.com/lapsedb/lapse/test/stress"
)

// TestLinearizable: operations of eight clients on ten documents with TTLs of a second or
// two, while the server is killed and restarted, at times without its projection, are
// linearizable. Half of the changes are retried under their Nats-Msg-Id without a reply;
// the others may have happened or not.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	for _, durability := range []string{"fsync", "os"} {
		t.Run(durability, func(t *testing.T) {
			t.Parallel()
			random := stress.Rand(t)
			s := harness.Serve(t, "--durability", durability)
			for i := range stress.Pick(1, 100) {
				linearizable(t, s, fmt.Sprint("h", i), random)
			}
			checkLog(t, wholeLog(t, dial(t, s)))
			s.Stop()
		})
	}
}

func linearizable(t *testing.T, s *harness.Server, collection string, random *rand.Rand) {
	t.Helper()
	defaultTTL := []int64{-1, 1, 2}[random.IntN(3)]
	mustAsk(t, dial(t, s), 201, "collection.create."+collection, fmt.Sprintf(`{"defaultTtl":%d}`, defaultTTL))
	clients := make([]*nats.Conn, 8)
	for i := range clients {
		clients[i] = dial(t, s) // before it is killed
	}
	load := &linear.Load{
		Collection: collection, IDs: 10, Clients: len(clients), Operations: 300, TTLs: []int64{0, 0, -1, 1, 1, 2},
		Seed: random.Uint64(), Retry: patience,
		Pause: func(r *rand.Rand) {
			switch r.IntN(100) {
			case 0: // until about the next second
				now := time.Now()
				time.Sleep(now.Truncate(time.Second).Add(time.Second).Sub(now) + time.Duration(r.IntN(10)-5)*time.Millisecond)
			case 1, 2, 3, 4, 5, 6, 7, 8, 9:
				time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
			}
		},
		Dial: func(client int) linear.Ask { return askerOf(clients[client]) },
	}
	var operations []linear.Operation
	done := make(chan error)
	go func() {
		var err error
		operations, err = load.Run()
		done <- err
	}()
	kills := 0
	for going := true; going; {
		select {
		case err := <-done:
			check(t, err)
			going = false
		case <-time.After(time.Duration(200+random.IntN(800)) * time.Millisecond): // of load
			s.Kill()
			if kills++; kills%2 == 0 {
				remove(t, filepath.Join(s.Dir, "projection"))
			}
			s.Restart()
		}
	}
	counts := make(map[string]int)
	for _, o := range operations {
		counts[fmt.Sprint(o.Kind, " ", o.Code)]++
		if o.Attempts > 1 {
			counts["retried"]++
		}
	}
	t.Logf("%s, defaultTtl %d, %d kills: %v", collection, defaultTTL, kills, counts)
	check(t, linear.Check(operations, defaultTTL))
}

// askerOf returns the Ask of a client.
func askerOf(nc *nats.Conn) linear.Ask {
	return func(tail, body string, headers ...string) (linear.Reply, error) {
		a, err := tryAskWith(nc, tail, body, time.Second, headers...)
		return linear.Reply{Code: a.code, Seq: a.seq, Body: a.body}, err
	}
}

// wholeLog reads the log up to an event that it appends for that, if need be by the next
// writer.
func wholeLog(t *testing.T, nc *nats.Conn) []event {
	t.Helper()
	name, end := fmt.Sprint("end", time.Now().UnixNano()), uint64(0)
	eventually(t, "collection "+name, func() bool {
		a, err := tryAskWith(nc, "collection.create."+name, "", hasty, "Nats-Msg-Id", name)
		end = a.seq
		return err == nil && a.code == 201
	})
	return readFeed(t, nc, "*", func(events []event) bool {
		return len(events) > 0 && events[len(events)-1].Seq >= end
	})
}
