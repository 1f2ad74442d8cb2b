package writer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/writer"
)

// TestLogUnreachable: while the log cannot be written every request gets a reply, and
// refused writes are not applied later.
func TestLogUnreachable(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", `{"defaultTtl":-1}`)
		ts := w.TS(w.Want(201, "document.create.c.a", `{"ttl":60}`))
		unfill := w.FillLog()
		before := w.End()

		r := w.Ask("document.create.c.b", "{}")
		if r.Code != 504 && r.Code != 503 {
			t.Errorf("the write under way came out with %s", r)
		}
		for range 5 {
			if r := w.Ask("document.create.c.b", "{}"); r.Code != 503 || r.Error != "unavailable" {
				t.Errorf("a later write came out with %s", r)
			}
		}
		w.Want(200, "document.get.c.a", "")
		w.Want(404, "document.get.c.b", "")
		w.Want(200, "status", "")
		processortest.SleepUntil(ts+60, 0)
		w.Want(404, "document.get.c.a", "")
		last := w.Publish("document.create.c.m", `{}`)
		if w.End() != before {
			t.Errorf("the log went from %d to %d", before, w.End())
		}

		unfill()
		w.Judged(last)
		w.Eventually("a write succeeds", func() bool { return w.Ask("document.upsert.c.d", "{}").Code < 300 })
		w.Want(404, "document.get.c.b", "")
		w.Eventually("the document expired", func() bool { return strings.Contains(w.Summary(before), "DocumentExpired(a)") })
		if got := w.Summary(before); strings.Count(got, "(m)") != 1 || strings.Count(got, "(a)") != 1 || strings.Contains(got, "(b)") {
			t.Errorf("the log says %s", got)
		}
	})
}

// TestStopWhileLogUnreachable: a stop does not wait for a log that cannot be written.
func TestStopWhileLogUnreachable(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", "")
		unfill := w.FillLog()
		answered := make(chan processortest.Reply)
		go func() { answered <- w.Ask("document.create.c.b", "{}") }()
		time.Sleep(time.Second)
		last := w.Publish("document.create.c.m", `{}`)
		w.Stop()
		if r := <-answered; r.Code != 504 { // the outcome is unknown
			t.Errorf("the write under way came out with %s", r)
		}
		unfill()
		w.Start()
		w.Judged(last)
		w.Want(200, "document.get.c.m", "")
	})
}

// TestAppendRefusedBoundsFences: a log that accepts the fence but not the event is not filled
// with fences, and no request waits for ever.
func TestAppendRefusedBoundsFences(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", "")
		limit := func(bytes int32) {
			config := w.Inside().Service.Log.Stream.CachedInfo().Config
			config.MaxMsgSize = bytes
			_, err := w.Inside().Service.Log.JS.UpdateStream(w.Ctx(), config)
			w.Check(err)
		}
		limit(1024)
		before := w.End()
		if r := w.Ask("document.create.c.a", `{"long":"`+strings.Repeat("x", 2000)+`"}`); r.Code != 503 {
			t.Errorf("what the log refuses came out with %s", r)
		}
		if fences := w.End() - before; fences > 2*writer.MaxRecoveries {
			t.Errorf("%d fences were logged meanwhile", fences)
		}
		limit(-1)
		w.Want(404, "document.get.c.a", "")
		time.Sleep(writer.MaxPause)
		w.Want(201, "document.create.c.a", "{}")
	})
}
