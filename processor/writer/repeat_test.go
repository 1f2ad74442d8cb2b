package writer_test

import (
	"testing"
	"time"

	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestRepeatsBeyondRetention: the reply to a repeat is kept as long as the id is
// remembered.
func TestRepeatsBeyondRetention(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{}`)
		first := w.Want(201, "document.create.c.a", `{"n":1}`, "Nats-Msg-Id", "m")
		w.Want(204, "document.delete.c.a", "")
		time.Sleep(110 * time.Second)
		if again := w.Want(201, "document.create.c.a", `{"n":1}`, "Nats-Msg-Id", "m"); string(again.Body) != string(first.Body) {
			t.Errorf("the repeat got %s, want %s", again.Body, first.Body)
		}
		time.Sleep(40 * time.Second)
		if begins := w.Stream("LAPSE_main").CachedInfo().State.FirstSeq; begins < 4 {
			t.Errorf("the log begins at %d still", begins)
		}
		w.Want(201, "document.create.c.a", `{"n":1}`, "Nats-Msg-Id", "m")
	}, processortest.Retaining(10*time.Second, 5*time.Second))
}

// TestRepeatWindow: a Nats-Msg-Id is remembered for exactly two minutes of log time, to
// the millisecond: in requests and published mutations, after a restart and a refold.
func TestRepeatWindow(t *testing.T) {
	for _, between := range []string{"nothing", "restart", "rebuild", "other writes"} {
		for _, first := range []string{"request", "publish"} {
			for _, again := range []string{"request", "publish"} {
				t.Run(between+"/"+first+"/"+again, func(t *testing.T) {
					processortest.Bubble(t, func(w *processortest.Wire) { testRepeatWindow(w, between, first, again) })
				})
			}
		}
	}
}

func testRepeatWindow(w *processortest.Wire, between, first, again string) {
	send := func(how, id string) {
		w.T.Helper()
		if how == "publish" {
			w.Judged(w.Publish("document.create.c."+id, `{"n":1}`, "Nats-Msg-Id", id))
		} else {
			w.Want(201, "document.create.c."+id, `{"n":1}`, "Nats-Msg-Id", id)
		}
	}
	w.Want(201, "collection.create.c", `{}`)
	processortest.SleepUntil(time.Now().Unix()+1, 357)
	start := time.Now()
	for _, id := range []string{"in", "out"} {
		send(first, id)
		w.Want(204, "document.delete.c."+id, "")
	}
	end := make(map[string]time.Time) // of the window
	for _, e := range w.Events() {
		if e.MsgID != "" {
			end[e.MsgID] = time.UnixMilli(e.Time).Add(2 * time.Minute)
		}
	}
	switch between {
	case "restart":
		time.Sleep(time.Minute)
		w.Restart()
	case "rebuild":
		time.Sleep(time.Minute)
		w.Stop()
		w.Check(w.Options.Projection.FS.RemoveAll(w.Options.Dir))
		w.Start()
	case "other writes":
		// Other writes forget old ids.
		for i := range 600 {
			time.Sleep(time.Until(start.Add(time.Duration(i) * 199 * time.Millisecond)))
			w.Want(200+min(1, max(0, 1-i)), "document.upsert.c.other", `{}`, "Nats-Msg-Id", fmt.Sprint("other", i))
		}
	}
	before := w.End()
	time.Sleep(time.Until(end["in"].Add(-time.Millisecond)))
	send(again, "in")
	w.Want(404, "document.get.c.in", "")
	time.Sleep(time.Until(end["out"]))
	send(again, "out")
	w.Want(200, "document.get.c.out", "")
	if got := w.Summary(before); got != "DocumentCreated(out)" {
		w.T.Errorf("the log says %s", got)
	}
}

// TestRepeatAtOnce: if many clients send one mutation at once under one id, as requests
// and published, it is applied once, and all get the same reply.
func TestRepeatAtOnce(t *testing.T) {
	random := stress.Rand(t)
	for _, durability := range []processor.Durability{processor.OS, processor.Fsync} {
		t.Run(string(durability), func(t *testing.T) {
			w := processortest.New(t, func(o *processor.Options) { o.Durability = durability })
			const clients = 32
			var conns []*nats.Conn
			for range clients {
				conns = append(conns, harness.Dial(t, w.Client.ConnectedUrl()))
			}
			w.Want(201, "collection.create.c", `{}`)
			for round := range stress.Pick(20, 2000) {
				repeatAtOnce(w, random, conns, round)
			}
		})
	}
}

func repeatAtOnce(w *processortest.Wire, random *rand.Rand, conns []*nats.Conn, round int) {
	w.T.Helper()
	id := fmt.Sprint("round", round)
	tail, body := "document.upsert.c.a", fmt.Sprintf(`{"n":%d}`, round)
	switch random.IntN(3) {
	case 0:
		tail = "document.create.c." + id
	case 1:
		tail, body = "collection.replace.c", fmt.Sprintf(`{"defaultTtl":%d}`, 1000+round)
	}
	before, judged := w.End(), w.Stream("LAPSE_main_MUTATIONS").CachedInfo().State.LastSeq
	answers := make([]*nats.Msg, len(conns))
	var ready, all sync.WaitGroup
	ready.Add(1)
	for i, nc := range conns {
		subject := "lapse.main.api."
		if i%8 == 7 {
			subject = "lapse.main.mutations."
		}
		m := &nats.Msg{Subject: subject + tail, Data: []byte(body), Header: nats.Header{"Nats-Msg-Id": {id}}}
		all.Go(func() {
			ready.Wait()
			var err error
			if answers[i], err = nc.RequestMsg(m, processortest.Patience); err != nil {
				w.T.Error(err)
			}
		})
	}
	ready.Done()
	all.Wait()
	if w.T.Failed() {
		w.T.FailNow()
	}
	// JetStream drops copies that come within a tenth of a second.
	w.Judged(max(judged+1, w.Stream("LAPSE_main_MUTATIONS").CachedInfo().State.LastSeq))
	for i, m := range answers {
		if i%8 != 7 && (m.Header.Get("Lapse-Status") != answers[0].Header.Get("Lapse-Status") || !bytes.Equal(m.Data, answers[0].Data)) {
			w.T.Fatalf("%s: client %d is told %v %s, client 0 %v %s", tail, i, m.Header, m.Data, answers[0].Header, answers[0].Data)
		}
	}
	if code := answers[0].Header.Get("Lapse-Status"); code != "200" && code != "201" {
		w.T.Fatalf("%s: %s %s", tail, code, answers[0].Data)
	}
	made := 0
	for _, e := range w.Events() {
		if e.Seq > before {
			made++
			if e.MsgID != id {
				w.T.Errorf("event %d has the id %q, want %q", e.Seq, e.MsgID, id)
			}
		}
	}
	if made != 1 {
		w.T.Fatalf("%s made %d events", tail, made)
	}
}

// TestRepeatOfTrimmedEvent: a repeat whose first event was trimmed from the log does
// nothing, and its reply says so.
func TestRepeatOfTrimmedEvent(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", `{}`)
	r := w.Want(201, "document.create.c.a", `{}`, "Nats-Msg-Id", "m")
	w.Want(204, "document.delete.c.a", "")
	w.Check(w.Stream("LAPSE_main").Purge(w.Ctx(), jetstream.WithPurgeSequence(r.Seq+1)))
	r = w.Refused(503, "unavailable", "document.create.c.a", `{}`, "Nats-Msg-Id", "m")
	if !strings.Contains(r.Message, "already applied") {
		t.Errorf("it says %s", r)
	}
	w.Want(404, "document.get.c.a", "")
}

// TestRepeatOfOlderLog: events of an older version do not record their operation. An
// operation that cannot have made the event is refused, any other is a repeat.
func TestRepeatOfOlderLog(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	w.Stop()
	at := fmt.Sprint(time.Now().UnixMilli())
	created := w.Intrude("c.DocumentCreated", `{"id":"a"}`, "Lapse-Time", at, "Lapse-Id", "a", "Lapse-Msg-Id", "m1")
	w.Intrude("c.DocumentReplaced", `{"id":"a","n":1}`, "Lapse-Time", at, "Lapse-Id", "a", "Lapse-Previous", fmt.Sprint(created), "Lapse-Msg-Id", "m2")
	w.Start()
	for range 2 {
		w.Want(201, "document.create.c.a", "{}", "Nats-Msg-Id", "m1")
		w.Want(201, "document.upsert.c.a", "{}", "Nats-Msg-Id", "m1")
		w.Want(200, "document.upsert.c.a", "{}", "Nats-Msg-Id", "m2")
		w.Want(200, "document.patch.c.a", "{}", "Nats-Msg-Id", "m2")
		for tail, id := range map[string]string{"document.replace.c.a": "m1", "document.delete.c.a": "m2", "document.create.c.a": "m2", "document.upsert.c.b": "m1", "collection.delete.c": "m2", "document.upsert.d.a": "m1"} {
			w.Refused(400, "bad_request", tail, "{}", "Nats-Msg-Id", id)
		}
		w.Restart()
	}
}
