package test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/test/attack"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// TestPoison: to random malformed input, each request has one reply with a code, each
// mutation is judged once, and the server keeps serving, also after a kill.
func TestPoison(t *testing.T) {
	t.Parallel()
	source := attack.Source{Rand: stress.Rand(t)}
	s := harness.Serve(t, "--durability", "os")
	nc := dial(t, s)
	mustAsk(t, nc, 201, "collection.create.sound", "")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	codes := make(map[string]int)
	for range stress.Pick(2, 100) {
		ask(t, nc, "collection.create.c", `{"defaultTtl":1,"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
		for range 100 {
			m := source.Request()
			answer, err := nc.RequestMsg(&nats.Msg{Subject: "lapse.main.api." + m.Tail, Data: []byte(m.Body), Header: m.Headers}, patience)
			if err != nil {
				t.Fatalf("%v: %v\n%s", m, err, s.Stderr())
			}
			code := answer.Header.Get("Lapse-Status")
			codes[code]++
			if code < "200" || code > "4999" {
				t.Errorf("%v: %q %s", m, answer.Header, answer.Data)
			}
			m = source.Mutation()
			ack, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "lapse.main.mutations." + m.Tail, Data: []byte(m.Body), Header: m.Headers})
			if err != nil {
				t.Fatalf("%v: %v\n%s", m, err, s.Stderr())
			}
			last = max(last, ack.Sequence)
		}
		s.Kill()
		s.Restart()
		eventually(t, "all judged", func() bool {
			a, err := tryAskFor(nc, "status", "", time.Second)
			return err == nil && a.code == 200 && askStatus(t, nc).MutationsBehind == 0
		})
		mustAsk(t, nc, 201, "document.create.sound.s", "{}")
		mustAsk(t, nc, 204, "document.delete.sound.s", "")
	}
	t.Log(codes)
	end := mustAsk(t, nc, 201, "collection.create.end", "").seq
	events := readFeed(t, nc, "*", func(events []event) bool { return events != nil && events[len(events)-1].Seq >= end })
	cause := uint64(0)
	for _, e := range events {
		if e.Cause == "" {
			continue
		}
		var n uint64
		if _, err := fmt.Sscanf(e.Cause, "mutations/%d", &n); err != nil || n <= cause { // a repeat has an internal event
			t.Fatalf("event %d has the cause %s after %d", e.Seq, e.Cause, cause)
		}
		cause = n
	}
	if cause == 0 || cause > last {
		t.Errorf("the last mutation judged is %d of %d", cause, last)
	}
	s.Stop()
}

// TestLargestMessages: a message of the largest size is answered; a larger one fails, and
// harms nothing else.
func TestLargestMessages(t *testing.T) {
	t.Parallel()
	s := harness.Serve(t)
	nc := dial(t, s)
	mustAsk(t, nc, 201, "collection.create.c", "")
	if nc.MaxPayload() != 4<<20 {
		t.Errorf("max_payload is %d", nc.MaxPayload())
	}
	for size, code := range map[int]int{2<<20 - 1: 201, 2 << 20: 201, 2<<20 + 1: 413, 4<<20 - 1: 413, 4 << 20: 413} {
		body := make([]byte, size)
		for i := range body {
			body[i] = ' '
		}
		copy(body, "{}")
		mustAsk(t, nc, code, fmt.Sprintf("document.create.c.%d", size), string(body))
	}
	if _, err := tryAsk(nc, "document.create.c.x", string(make([]byte, 4<<20+1))); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("a larger message: %v", err)
	}
	mustAsk(t, nc, 201, "document.create.c.x", "{}")
	s.Stop()
}
