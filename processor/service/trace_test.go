package service_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/schema"
)

// TestTraceForms: the headers of a request and of a published mutation stand on the event as
// schema/vectors says.
func TestTraceForms(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	var vectors []struct {
		Name                    string
		Headers                 [][2]string
		TraceParent, TraceState string
	}
	text, err := os.ReadFile("../../schema/vectors/pure/traces.json")
	w.Check(err)
	w.Check(json.Unmarshal(text, &vectors))
	js, err := jetstream.New(w.Client)
	w.Check(err)
	for i, v := range vectors {
		header := make(nats.Header)
		for _, h := range v.Headers {
			header.Add(h[0], h[1])
		}
		before := w.End()
		m, err := w.Client.RequestMsg(&nats.Msg{Subject: fmt.Sprint("lapse.main.api.document.create.c.r", i), Header: header, Data: []byte("{}")}, processortest.Patience)
		w.Check(err)
		if r, err := processortest.ReadReply(m); err != nil || r.Code != 201 {
			t.Fatalf("%s: %s %v", v.Name, r, err)
		}
		ack, err := js.PublishMsg(w.Ctx(), &nats.Msg{Subject: fmt.Sprint("lapse.main.mutations.document.create.c.m", i), Header: header, Data: []byte("{}")})
		w.Check(err)
		w.Judged(ack.Sequence)
		for _, e := range w.Events() {
			if want := (schema.Trace{Parent: v.TraceParent, State: v.TraceState}); e.Seq > before && e.Trace != want {
				t.Errorf("%s: event %d of %s has %+v, want %+v", v.Name, e.Seq, e.ID, e.Trace, want)
			}
		}
	}
}

// TestTraceOfEvents: each event that a request or mutation makes has its trace context, also
// after the log is folded again; expiries and warnings have none.
func TestTraceOfEvents(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		n := 0
		parents := map[string]string{"": ""}
		trace := func() []string {
			n++
			state := fmt.Sprint("n=", n)
			parents[state] = fmt.Sprintf("00-%032x-%016x-01", n, n)
			return []string{"traceparent", parents[state], "tracestate", state}
		}
		want := func(code int, tail, body string, headers ...string) {
			t.Helper()
			w.Want(code, tail, body, append(trace(), headers...)...)
		}
		want(201, "collection.create.c", `{"defaultTtl":60,"warnBefore":50}`)
		want(201, "document.create.c.a", "{}", "Nats-Msg-Id", "a")
		want(201, "document.create.c.a", "{}", "Nats-Msg-Id", "a") // 3 makes no event
		want(200, "document.patch.c.a", "{}")
		want(200, "document.touch.c.a", "")
		want(200, "document.hold.c.a", "")
		want(200, "document.release.c.a", "")
		want(204, "document.delete.c.a", "")
		want(201, "document.restore.c.a", "")
		want(200, "batch.c", `{"operations":[{"op":"upsert","id":"b","body":{}},{"op":"get","id":"b"},{"op":"upsert","id":"x","body":{}}]}`)
		want(200, "batch.c", `{"operations":[{"op":"delete","id":"b"},{"op":"delete","id":"x"}],"atomic":true}`)
		w.Publish("document.upsert.c.m", "{}", trace()...)
		w.Judged(w.Publish("document.create.c.m", "{}", trace()...))
		processortest.SleepUntil(time.Now().Unix()+70, 0)
		want(200, "collection.replace.c", `{"defaultTtl":-1}`)
		want(204, "collection.delete.c", "")
		check := func() {
			t.Helper()
			var got []string
			for _, e := range w.Events() {
				if e.Trace.Parent != parents[e.Trace.State] {
					t.Errorf("event %d has %+v", e.Seq, e.Trace)
				}
				got = append(got, e.Type.String()+"("+strings.TrimPrefix(e.Trace.State, "n=")+")")
			}
			if got, want := strings.Join(got, " "), "CollectionCreated(1) DocumentCreated(2) DocumentReplaced(4) DocumentTouched(5) DocumentHeld(6) DocumentReleased(7) DocumentDeleted(8) "+
				"DocumentCreated(9) DocumentCreated(10) DocumentCreated(10) DocumentDeleted(11) DocumentDeleted(11) DocumentCreated(12) MutationRejected(13) "+
				"DocumentExpiring() DocumentExpiring() DocumentExpired() DocumentExpired() CollectionReplaced(14) CollectionDeleted(15)"; got != want {
				t.Errorf("the log has\n%s, want\n%s", got, want)
			}
		}
		check()
		digest := w.Inside().Store.Digest()
		w.RestartInside(4 << 20)
		if logs := w.Logs.String(); strings.Contains(logs, "folded again") {
			t.Error(logs)
		}
		check()
		if again := w.Inside().Store.Digest(); again != digest {
			t.Errorf("the digest is %s, was %s", again, digest)
		}
		if r := w.Want(200, "history.c.m", ""); !strings.Contains(string(r.Body), `"traceparent":"`+parents["n=12"]+`"`) {
			t.Errorf("history: %s", r.Body)
		}
	})
}

// TestSlowRequestIsTraced: the line about a slow request has the id of its trace.
func TestSlowRequestIsTraced(t *testing.T) {
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", "")
		release := w.HoldWriter()
		time.AfterFunc(2*time.Second, release)
		w.Want(201, "document.create.c.a", "{}", "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		if logs := w.Logs.String(); !strings.Contains(logs, `msg="slow operation" what=document.create took=2s trace_id=4bf92f3577b34da6a3ce929d0e0e4736`) {
			t.Error(logs)
		}
	})
}
