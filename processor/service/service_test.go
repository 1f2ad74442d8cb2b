package service_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/service"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

// TestOverloaded: a request that does not fit a full queue is refused at once, and queued
// ones are still answered.
func TestOverloaded(t *testing.T) {
	w := processortest.New(t, func(o *processor.Options) { o.Queue, o.Workers = 1, 1 })
	w.Want(201, "collection.create.c", "")
	w.Want(201, "document.create.c.a", "{}")
	overloaded := func(why string, tails ...string) {
		t.Helper()
		for _, tail := range tails {
			body := ""
			switch tail {
			case "document.upsert.c.a":
				body = "{}"
			case "batch.c":
				body = `{"operations":[{"op":"upsert","id":"a","body":{}}]}`
			}
			if r := w.Refused(429, "overloaded", tail, body); !strings.Contains(r.Message, "later") {
				t.Errorf("%s: %s says %q", why, tail, r.Message)
			}
		}
	}

	answered := make(chan machine.Outcome, 1)
	release := w.HoldWriter()
	w.Inside().Writer.Proposals <- &writer.Proposal{Mutation: schema.NewMutation("document.delete.c.a", nil), Done: func(o machine.Outcome) { answered <- o }}
	overloaded("the writer's queue is full", "document.upsert.c.a", "document.delete.c.a", "collection.delete.c", "collection.create.d", "batch.c")
	w.Want(200, "document.get.c.a", "")
	release()
	if o := <-answered; o.Code != 204 {
		t.Errorf("the one that waited came out with %+v", o)
	}

	w.Inside().Service.Config.AllHeld.Add(service.MaxHeldBytes)
	w.Refused(429, "overloaded", "document.upsert.c.a", `{"x":"`+strings.Repeat("x", service.SmallRequest)+`"}`)
	w.Want(201, "document.upsert.c.a", "{}")
	w.Inside().Service.Config.AllHeld.Add(-service.MaxHeldBytes)
	w.Inside().Service.Wait(service.MaxWaiting)
	w.Refused(429, "overloaded", "document.get.c.a", "", "Lapse-Min-Seq", "1000000")
	w.Inside().Service.Wait(-service.MaxWaiting)
	w.Want(201, "document.create.c.b", "{}")
}

// TestPanic: a read that panics gets a reply, and so does the next one.
func TestPanic(t *testing.T) {
	w := processortest.New(t, func(o *processor.Options) { o.Workers = 1 })
	w.Want(201, "collection.create.c", "")
	w.Want(201, "document.create.c.a", "{}")

	// The cause is set up on the goroutine that will panic.
	serving := w.Inside().Service
	reader := func(do func()) {
		done := make(chan struct{})
		serving.Reads().Put(serving, "", func() { do(); close(done) })
		<-done
	}
	log := serving.Log
	reader(func() { serving.Log = nil })
	w.Refused(503, "unavailable", "history.c.a", "")
	reader(func() { serving.Log = log })
	w.Want(200, "history.c.a", "")
	if !strings.Contains(w.Logs.String(), "a request panicked") {
		t.Error("nobody was told of the panic")
	}
}

// TestPanicOutsideQueue: a request that panics outside a queue gets a reply, too: on arrival,
// after its Lapse-Min-Seq, and around a snapshot.
func TestPanicOutsideQueue(t *testing.T) {
	var armed atomic.Bool
	processortest.Bubble(t, func(w *processortest.Wire) {
		w.Want(201, "collection.create.c", "")
		serving := w.Inside().Service

		armed.Store(true)
		serving.Config.AllHeld.Add(service.MaxHeldBytes)
		w.Refused(503, "unavailable", "document.upsert.c.a", `{"x":"`+strings.Repeat("x", service.SmallRequest)+`"}`)
		serving.Config.AllHeld.Add(-service.MaxHeldBytes)

		replied := make(chan processortest.Reply)
		go func() { replied <- w.Ask("document.get.c.unknown", "", "Lapse-Min-Seq", fmt.Sprint(w.End()+1)) }()
		synctest.Wait()
		let := make(chan struct{})
		occupy(serving.Gets(), 2, let)
		serving.Gets().Put(serving, "", func() {})
		armed.Store(true)
		w.Want(201, "document.create.c.a", "{}")
		if r := <-replied; r.Code != 503 {
			t.Errorf("the reply is %s", r)
		}
		close(let)

		for range 2 {
			w.Want(201, "snapshot.create", "")
			w.Want(200, "document.upsert.c.a", "{}")
		}
		armed.Store(true)
		w.Refused(503, "unavailable", "snapshot.create", "") // removes the oldest
		w.Want(201, "snapshot.create", "")
	}, func(o *processor.Options) {
		o.Queue, o.Workers = 1, 1
		o.Events = func(e observe.Event) {
			switch e.(type) {
			case observe.RequestRejected, observe.SnapshotRemoved:
				if armed.CompareAndSwap(true, false) {
					panic("a listener panics")
				}
			}
		}
	})
}

// TestReplyTooLarge: a reply too large for a message is a 413, and the change that it
// would report is not made.
func TestReplyTooLarge(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	large := `{"p":"` + strings.Repeat("x", schema.MaxDocumentBytes-8) + `"}`
	for _, id := range []string{"a", "b", "c"} {
		w.Want(201, "document.create.c."+id, large)
	}
	w.Want(200, "document.patch.c.a", `{"p":"short"}`)
	w.Want(200, "document.replace.c.a", large)
	if r := w.Want(200, "history.c.a", ""); !strings.Contains(string(r.Body), `],"cursor":"`) {
		t.Errorf("the page has no cursor: %.200s", r.Body)
	}

	codes := func(r processortest.Reply) (codes []int) {
		t.Helper()
		var reply struct{ Results []struct{ Code int } }
		w.Check(json.Unmarshal(r.Body, &reply))
		for _, result := range reply.Results {
			codes = append(codes, result.Code)
		}
		return codes
	}
	get := `{"op":"get","id":"a"},{"op":"get","id":"b"},{"op":"get","id":"nobody"},{"op":"get","id":"c"}`
	for name, batch := range map[string]string{
		"of gets":        `{"operations":[` + get + `]}`,
		"that mutates":   `{"operations":[` + get + `,{"op":"upsert","id":"s","body":{}}]}`,
		"that is atomic": `{"atomic":true,"operations":[` + get + `,{"op":"upsert","id":"s","body":{}}]}`,
	} {
		if got := fmt.Sprint(codes(w.Want(200, "batch.c", batch))[:4]); got != "[200 413 404 413]" {
			t.Errorf("a batch %s has the codes %s", name, got)
		}
	}

	// Many gets: first their reply is too large, then what they read.
	r := w.Want(200, "batch.c", `{"operations":[`+strings.TrimSuffix(strings.Repeat(`{"op":"get","id":"b"},`, 100), ",")+`]}`)
	for text, want := range map[string]int{
		"reply of the":   machine.MaxBatchBytes/schema.MaxDocumentBytes - 1,
		"documents of t": 100 - machine.MaxBatchBytes/schema.MaxDocumentBytes,
	} {
		if n := strings.Count(string(r.Body), text); n < want-1 || n > want+1 {
			t.Errorf("%d results have %q, want about %d", n, text, want)
		}
	}

	// Small patches with large results.
	before := w.End()
	patch := `{"op":"patch","id":"a","body":{"q":null}},{"op":"patch","id":"b","body":{"q":null}}`
	if got := fmt.Sprint(codes(w.Want(200, "batch.c", `{"atomic":true,"operations":[`+patch+`]}`))); got != "[424 413]" || w.End() != before {
		t.Errorf("an atomic batch has the codes %s, and the log goes from %d to %d", got, before, w.End())
	}
	if got := fmt.Sprint(codes(w.Want(200, "batch.c", `{"operations":[`+patch+`]}`))); got != "[200 413]" || w.End() != before+1 {
		t.Errorf("a batch has the codes %s, and the log goes from %d to %d", got, before, w.End())
	}
}

// TestReplySubjects: a request is served only if its reply subject is an inbox, with any
// prefix.
func TestReplySubjects(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	before := w.End()
	elsewhere, err := w.Log.SubscribeSync("lapse.main.mutations.>")
	w.Check(err)
	w.Check(w.Log.Flush())
	for _, to := range []string{"", "lapse.main.mutations.document.upsert.c.stolen", "lapse.main.api.document.create.c.x", "$SRV.PING", "$JS.API.INFO", "$KV.bucket.key", "_INBOX", "_INBOX.*"} {
		w.Check(w.Client.PublishMsg(&nats.Msg{Subject: "lapse.main.api.document.create.c.a", Reply: to, Data: []byte("{}")}))
	}
	w.Check(w.Client.Flush())
	w.Want(404, "document.get.c.a", "")
	if w.End() != before {
		t.Error("a request with a foreign reply subject was carried out")
	}
	if m, err := elsewhere.NextMsg(time.Millisecond); err == nil {
		t.Errorf("the reply came to %s", m.Subject)
	}
	for _, prefix := range []string{"_MINE", "my.inbox"} {
		nc := harness.Dial(t, w.Client.ConnectedUrl(), nats.CustomInboxPrefix(prefix))
		if m, err := nc.Request("lapse.main.api.collection.get.c", nil, time.Minute); err != nil || m.Header.Get("Lapse-Status") != "200" {
			t.Errorf("inbox prefix %s: %+v, %v", prefix, m, err)
		}
		js, err := jetstream.New(nc)
		w.Check(err)
		if _, err := js.Publish(w.Ctx(), "lapse.main.mutations.document.upsert.c.mine", []byte("{}")); err != nil {
			t.Errorf("inbox prefix %s: %v", prefix, err)
		}
	}
}

// TestDiscovery: the service answers PING, INFO and STATS, and counts requests and
// errors.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	w.Want(409, "collection.create.c", "")
	w.Want(400, "frobnicate", "")
	w.Want(504, "collection.list", "", "Lapse-Min-Seq", "1000") // waits 2 s
	for _, subject := range []string{"$SRV.PING", "$SRV.PING.lapse", "$SRV.INFO", "$SRV.INFO.lapse", "$SRV.STATS", "$SRV.STATS.lapse"} {
		m, err := w.Client.Request(subject, nil, processortest.Patience)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		var reply struct {
			Name      string `json:"name"`
			ID        string `json:"id"`
			Version   string `json:"version"`
			Type      string `json:"type"`
			Endpoints []struct {
				Subject    string `json:"subject"`
				Requests   int    `json:"num_requests"`
				Errors     int    `json:"num_errors"`
				Last       string `json:"last_error"`
				Processing int    `json:"processing_time"`
				Average    int    `json:"average_processing_time"`
				Data       map[string]struct{ Requests, Errors int }
			} `json:"endpoints"`
		}
		w.Check(json.Unmarshal(m.Data, &reply))
		if reply.Name != "lapse" || reply.Version != "1.2.3" || reply.ID == "" || !strings.HasPrefix(reply.Type, "io.nats.micro.v1.") {
			t.Errorf("%s: %s", subject, m.Data)
		}
		if strings.Contains(subject, "PING") {
			continue
		}
		if len(reply.Endpoints) != 1 || reply.Endpoints[0].Subject != "lapse.main.api.>" {
			t.Errorf("%s: %s", subject, m.Data)
		}
		if strings.Contains(subject, "STATS") {
			if data := reply.Endpoints[0].Data; data["collection.create"].Requests != 2 || data["collection.create"].Errors != 1 || data["unknown"].Errors != 1 {
				t.Errorf("%s: %s", subject, m.Data)
			}
			// Handlers return before the reply: these are the numbers of the replies.
			if all := reply.Endpoints[0]; all.Requests != 4 || all.Errors != 3 || !strings.HasPrefix(all.Last, "504:") ||
				time.Duration(all.Processing) < time.Second || all.Average != all.Processing/4 {
				t.Errorf("%s: %s", subject, m.Data)
			}
		}
	}
}

// TestReadYourWrites: a write is visible to any client at the Lapse-Seq of its reply, to
// gets and to queries by an index.
func TestReadYourWrites(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", `{"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
	last := uint64(0)
	for i := range 200 {
		id := fmt.Sprint(i % 7)
		r := w.Ask("document.upsert.c."+id, fmt.Sprintf(`{"n":%d}`, i))
		var document struct {
			ETag uint64 `json:"_etag,string"`
		}
		w.Check(json.Unmarshal(r.Body, &document))
		if r.Seq < document.ETag || r.Seq < last {
			t.Fatalf("write %d: Lapse-Seq %d after %d, the document is at %d", i, r.Seq, last, document.ETag)
		}
		last = r.Seq
		got := w.Want(200, "document.get.c."+id, "", "Lapse-Min-Seq", fmt.Sprint(r.Seq))
		if string(got.Body) != string(r.Body) {
			t.Fatalf("wrote %s and read %s", r.Body, got.Body)
		}
		if a := ask(w, "c", fmt.Sprintf(`,"where":"doc.n == %d"`, i)); a.ids() != id || a.Plan.Index == nil {
			t.Fatalf("after write %d: %+v", i, a)
		}
	}
}

// TestSeqOfGet: the Lapse-Seq of a get is a sequence at which the document was as in the
// reply, whatever was folded between the read and the reply.
func TestSeqOfGet(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	w.Want(201, "document.create.c.a", "{}")
	store := w.Inside().Store
	c, _ := store.Collection("c")
	old, ok, err := store.Document(c, "a")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	before := store.Cursor().Seq
	w.Want(200, "document.upsert.c.a", "{}")
	renewed, _, err := store.Document(c, "a")
	w.Check(err)
	for _, record := range []projections.Record{old, renewed} {
		inbox := w.Client.NewInbox()
		answers, err := w.Client.SubscribeSync(inbox)
		w.Check(err)
		w.Check(w.Client.Flush())
		w.Inside().Service.ReplyDocument(inbox, answer.Live{Record: record}, before)
		m, err := answers.NextMsg(processortest.Patience)
		w.Check(err)
		r, err := processortest.ReadReply(m)
		w.Check(err)
		if want := max(before, uint64(record.Version)); r.Seq != want {
			t.Errorf("version %d read after %d: Lapse-Seq %d", record.Version, before, r.Seq)
		}
	}
}

// TestProjectionInUse: a projection that another processor has open is left alone.
func TestProjectionInUse(t *testing.T) {
	w := processortest.New(t)
	w.Want(201, "collection.create.c", "")
	if _, err := processor.Start(w.Ctx(), w.Connections(), w.Options); err == nil || !strings.Contains(err.Error(), "lock") {
		t.Errorf("opened a second time: %v", err)
	}
	w.Want(201, "document.create.c.a", "{}")
	w.Stop()
	w.Start()
	if strings.Contains(w.Logs.String(), "folded again") {
		t.Error("the projection was thrown away")
	}
	w.Want(200, "document.get.c.a", "")
}
