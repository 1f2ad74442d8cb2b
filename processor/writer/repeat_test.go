package writer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/processortest"
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
