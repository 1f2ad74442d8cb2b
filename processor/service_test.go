package processor

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/answer"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/offline"
	"github.com/lapsedb/lapse/processor/service"
	"github.com/lapsedb/lapse/processor/snapshot"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
	"github.com/lapsedb/lapse/test/stress"
)

// TestOverloaded: a request that does not fit a full queue is refused at once, and queued
// ones are still answered.
func TestOverloaded(t *testing.T) {
	w := newWire(t, func(o *Options) { o.Queue, o.Workers = 1, 1 })
	w.want(201, "collection.create.c", "")
	w.want(201, "document.create.c.a", "{}")
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
			if r := w.refused(429, "overloaded", tail, body); !strings.Contains(r.message, "later") {
				t.Errorf("%s: %s says %q", why, tail, r.message)
			}
		}
	}

	answered := make(chan machine.Outcome, 1)
	release := w.holdWriter()
	w.processor.writer.Proposals <- &writer.Proposal{Mutation: schema.NewMutation("document.delete.c.a", nil), Done: func(o machine.Outcome) { answered <- o }}
	overloaded("the writer's queue is full", "document.upsert.c.a", "document.delete.c.a", "collection.delete.c", "collection.create.d", "batch.c")
	w.want(200, "document.get.c.a", "")
	release()
	if o := <-answered; o.Code != 204 {
		t.Errorf("the one that waited came out with %+v", o)
	}

	let := make(chan struct{})
	release = sync.OnceFunc(func() { close(let) })
	defer release()
	for _, lane := range []*service.Lane{w.processor.service.Gets, w.processor.service.Reads} {
		occupy(lane, 2, let)
		lane.Put(&service.Request{Service: w.processor.service}, func() {})
	}
	w.want(404, "document.get.c.a", "") // its end is known in memory, so it needs no worker
	overloaded("the readers' queue is full", "document.get.c.unknown", "collection.get.c", "collection.list", "history.c.a", "status", "batch.c")
	w.want(201, "document.upsert.c.a", "{}")
	release()
	w.eventually("the queues are empty", func() bool {
		return w.processor.service.Gets.Len() == 0 && w.processor.service.Reads.Len() == 0
	})
	w.want(200, "document.get.c.a", "")

	w.processor.service.Config.AllHeld.Add(service.MaxHeldBytes)
	w.refused(429, "overloaded", "document.upsert.c.a", `{"x":"`+strings.Repeat("x", service.SmallRequest)+`"}`)
	w.want(200, "document.upsert.c.a", "{}")
	w.processor.service.Config.AllHeld.Add(-service.MaxHeldBytes)
	w.processor.service.Waiting.Add(service.MaxWaiting)
	w.refused(429, "overloaded", "document.get.c.a", "", "Lapse-Min-Seq", "1000000")
	w.processor.service.Waiting.Add(-service.MaxWaiting)
	w.want(201, "document.create.c.b", "{}")
}

// TestPanic: a request that panics gets a reply, and so does the next one.
func TestPanic(t *testing.T) {
	w := newWire(t, func(o *Options) { o.Workers = 1 })
	w.want(201, "collection.create.c", "")
	w.want(201, "document.create.c.a", "{}")

	// The cause of each panic is set up on the goroutine that will panic.
	serving, deciding := w.processor.service, w.processor.writer.Term.Load().Machine
	reader := func(do func()) {
		done := make(chan struct{})
		serving.Reads.Put(&service.Request{Service: serving}, func() { do(); close(done) })
		<-done
	}
	log := serving.Log
	reader(func() { serving.Log = nil })
	w.refused(503, "unavailable", "history.c.a", "")
	reader(func() { serving.Log = log })
	w.want(200, "history.c.a", "")
	if !strings.Contains(w.logs.String(), "a request panicked") {
		t.Error("nobody was told of the panic")
	}

	writer := func(do func()) {
		done := make(chan struct{})
		w.processor.writer.Proposals <- &writer.Proposal{Mutation: schema.NewMutation("", nil), Done: func(machine.Outcome) { do(); close(done) }}
		<-done
	}
	messages := deciding.Overlay.Messages
	writer(func() { deciding.Overlay.Messages = nil })
	w.refused(503, "unavailable", "document.upsert.c.a", "{}", "Nats-Msg-Id", "m")
	w.want(200, "document.upsert.c.a", `{"n":1}`)
	writer(func() { deciding.Overlay.Messages = messages })
	w.want(200, "document.upsert.c.a", `{"n":2}`, "Nats-Msg-Id", "m")
	w.restart()
	w.want(200, "document.get.c.a", "")
}

// TestPanicOutsideQueue: a request that panics outside a queue gets a reply, too: on arrival,
// after its Lapse-Min-Seq, and around a snapshot.
func TestPanicOutsideQueue(t *testing.T) {
	var armed atomic.Bool
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", "")
		serving := w.processor.service

		armed.Store(true)
		serving.Config.AllHeld.Add(service.MaxHeldBytes)
		w.refused(503, "unavailable", "document.upsert.c.a", `{"x":"`+strings.Repeat("x", service.SmallRequest)+`"}`)
		serving.Config.AllHeld.Add(-service.MaxHeldBytes)

		replied := make(chan wireReply)
		go func() { replied <- w.ask("document.get.c.unknown", "", "Lapse-Min-Seq", fmt.Sprint(w.end()+1)) }()
		synctest.Wait()
		let := make(chan struct{})
		occupy(serving.Gets, 2, let)
		serving.Gets.Put(&service.Request{Service: serving}, func() {})
		armed.Store(true)
		w.want(201, "document.create.c.a", "{}")
		if r := <-replied; r.code != 503 {
			t.Errorf("the reply is %s", r)
		}
		close(let)

		for range snapshot.KeepSnapshots {
			w.want(201, "snapshot.create", "")
			w.want(200, "document.upsert.c.a", "{}")
		}
		armed.Store(true)
		w.refused(503, "unavailable", "snapshot.create", "") // removes the oldest
		w.want(201, "snapshot.create", "")
	}, func(o *Options) {
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
	w := newWire(t)
	w.want(201, "collection.create.c", "")
	large := `{"p":"` + strings.Repeat("x", schema.MaxDocumentBytes-8) + `"}`
	for _, id := range []string{"a", "b", "c"} {
		w.want(201, "document.create.c."+id, large)
	}
	w.want(200, "document.patch.c.a", `{"p":"short"}`)
	w.want(200, "document.replace.c.a", large)
	w.refused(413, "too_large", "history.c.a", "")
	w.want(200, "history.c.a", `{"limit":1}`)

	codes := func(r wireReply) (codes []int) {
		t.Helper()
		var reply struct{ Results []struct{ Code int } }
		w.check(json.Unmarshal(r.body, &reply))
		for _, one := range reply.Results {
			codes = append(codes, one.Code)
		}
		return codes
	}
	get := `{"op":"get","id":"a"},{"op":"get","id":"b"},{"op":"get","id":"nobody"},{"op":"get","id":"c"}`
	for name, batch := range map[string]string{
		"of gets":        `{"operations":[` + get + `]}`,
		"that mutates":   `{"operations":[` + get + `,{"op":"upsert","id":"s","body":{}}]}`,
		"that is atomic": `{"atomic":true,"operations":[` + get + `,{"op":"upsert","id":"s","body":{}}]}`,
	} {
		if got := fmt.Sprint(codes(w.want(200, "batch.c", batch))[:4]); got != "[200 413 404 413]" {
			t.Errorf("a batch %s has the codes %s", name, got)
		}
	}

	// Many gets: first their reply is too large, then what they read.
	r := w.want(200, "batch.c", `{"operations":[`+strings.TrimSuffix(strings.Repeat(`{"op":"get","id":"b"},`, 100), ",")+`]}`)
	for text, want := range map[string]int{
		"reply of the":   machine.MaxBatchBytes/schema.MaxDocumentBytes - 1,
		"documents of t": 100 - machine.MaxBatchBytes/schema.MaxDocumentBytes,
	} {
		if n := strings.Count(string(r.body), text); n < want-1 || n > want+1 {
			t.Errorf("%d results have %q, want about %d", n, text, want)
		}
	}

	// Small patches with large results.
	before := w.end()
	patch := `{"op":"patch","id":"a","body":{"q":null}},{"op":"patch","id":"b","body":{"q":null}}`
	if got := fmt.Sprint(codes(w.want(200, "batch.c", `{"atomic":true,"operations":[`+patch+`]}`))); got != "[424 413]" || w.end() != before {
		t.Errorf("an atomic batch has the codes %s, and the log goes from %d to %d", got, before, w.end())
	}
	if got := fmt.Sprint(codes(w.want(200, "batch.c", `{"operations":[`+patch+`]}`))); got != "[200 413]" || w.end() != before+1 {
		t.Errorf("a batch has the codes %s, and the log goes from %d to %d", got, before, w.end())
	}
}

// TestReplySubjects: a request is served only if its reply subject is an inbox, with any
// prefix.
func TestReplySubjects(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", "")
	before := w.end()
	elsewhere, err := w.log.SubscribeSync("lapse.main.mutations.>")
	w.check(err)
	w.check(w.log.Flush())
	for _, to := range []string{"", "lapse.main.mutations.document.upsert.c.stolen", "lapse.main.api.document.create.c.x", "$SRV.PING", "$JS.API.INFO", "$KV.bucket.key", "_INBOX", "_INBOX.*"} {
		w.check(w.client.PublishMsg(&nats.Msg{Subject: "lapse.main.api.document.create.c.a", Reply: to, Data: []byte("{}")}))
	}
	w.check(w.client.Flush())
	w.want(404, "document.get.c.a", "")
	if w.end() != before {
		t.Error("a request with a foreign reply subject was carried out")
	}
	if m, err := elsewhere.NextMsg(time.Millisecond); err == nil {
		t.Errorf("the reply came to %s", m.Subject)
	}
	for _, prefix := range []string{"_MINE", "my.inbox"} {
		nc := harness.Dial(t, w.client.ConnectedUrl(), nats.CustomInboxPrefix(prefix))
		if m, err := nc.Request("lapse.main.api.collection.get.c", nil, time.Minute); err != nil || m.Header.Get("Lapse-Status") != "200" {
			t.Errorf("inbox prefix %s: %+v, %v", prefix, m, err)
		}
		js, err := jetstream.New(nc)
		w.check(err)
		if _, err := js.Publish(w.ctx(), "lapse.main.mutations.document.upsert.c.mine", []byte("{}")); err != nil {
			t.Errorf("inbox prefix %s: %v", prefix, err)
		}
	}
}

// TestDiscovery: the service answers PING, INFO and STATS, and counts requests and
// errors.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	w.want(201, "collection.create.c", "")
	w.want(409, "collection.create.c", "")
	w.want(400, "frobnicate", "")
	w.want(504, "collection.list", "", "Lapse-Min-Seq", "1000") // waits 2 s
	for _, subject := range []string{"$SRV.PING", "$SRV.PING.lapse", "$SRV.INFO", "$SRV.INFO.lapse", "$SRV.STATS", "$SRV.STATS.lapse"} {
		m, err := w.client.Request(subject, nil, patience)
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
		w.check(json.Unmarshal(m.Data, &reply))
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
	w := newWire(t)
	w.want(201, "collection.create.c", `{"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
	last := uint64(0)
	for i := range 200 {
		id := fmt.Sprint(i % 7)
		r := w.ask("document.upsert.c."+id, fmt.Sprintf(`{"n":%d}`, i))
		var document struct {
			ETag uint64 `json:"_etag,string"`
		}
		w.check(json.Unmarshal(r.body, &document))
		if r.seq < document.ETag || r.seq < last {
			t.Fatalf("write %d: Lapse-Seq %d after %d, the document is at %d", i, r.seq, last, document.ETag)
		}
		last = r.seq
		got := w.want(200, "document.get.c."+id, "", "Lapse-Min-Seq", fmt.Sprint(r.seq))
		if string(got.body) != string(r.body) {
			t.Fatalf("wrote %s and read %s", r.body, got.body)
		}
		if a := w.query("c", fmt.Sprintf(`,"where":"doc.n == %d"`, i)); a.ids() != id || a.Plan.Index == nil {
			t.Fatalf("after write %d: %+v", i, a)
		}
	}
}

// TestSeqOfGet: the Lapse-Seq of a get is a sequence at which the document was as in the
// reply, whatever was folded between the read and the reply.
func TestSeqOfGet(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", "")
	w.want(201, "document.create.c.a", "{}")
	store := w.processor.store
	c, _ := store.Collection("c")
	old, ok, err := store.Document(c, "a")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	before := store.Cursor().Seq
	w.want(200, "document.upsert.c.a", "{}")
	renewed, _, err := store.Document(c, "a")
	w.check(err)
	for _, record := range []projections.Record{old, renewed} {
		inbox := w.client.NewInbox()
		answers, err := w.client.SubscribeSync(inbox)
		w.check(err)
		w.check(w.client.Flush())
		(&service.Request{Service: w.processor.service, Op: "document.get", To: inbox}).ReplyDocument(answer.Live{Record: record}, before)
		m, err := answers.NextMsg(patience)
		w.check(err)
		r, err := readReply(m)
		w.check(err)
		if want := max(before, uint64(record.Version)); r.seq != want {
			t.Errorf("version %d read after %d: Lapse-Seq %d", record.Version, before, r.seq)
		}
	}
}

// TestLogUnreachable: while the log cannot be written every request gets a reply, and
// refused writes are not applied later.
func TestLogUnreachable(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{"defaultTtl":-1}`)
		ts := w.tsOf(w.want(201, "document.create.c.a", `{"ttl":60}`))
		unfill := w.fillLog()
		before := w.end()

		r := w.ask("document.create.c.b", "{}")
		if r.code != 504 && r.code != 503 {
			t.Errorf("the write under way came out with %s", r)
		}
		for range 5 {
			if r := w.ask("document.create.c.b", "{}"); r.code != 503 || r.error != "unavailable" {
				t.Errorf("a later write came out with %s", r)
			}
		}
		w.want(200, "document.get.c.a", "")
		w.want(404, "document.get.c.b", "")
		w.want(200, "status", "")
		sleepUntil(ts+60, 0)
		w.want(404, "document.get.c.a", "")
		last := w.publish("document.create.c.m", `{}`)
		if w.end() != before {
			t.Errorf("the log went from %d to %d", before, w.end())
		}

		unfill()
		w.judged(last)
		w.eventually("a write succeeds", func() bool { return w.ask("document.upsert.c.d", "{}").code < 300 })
		w.want(404, "document.get.c.b", "")
		w.eventually("the document expired", func() bool { return strings.Contains(w.summary(before), "DocumentExpired(a)") })
		if got := w.summary(before); strings.Count(got, "(m)") != 1 || strings.Count(got, "(a)") != 1 || strings.Contains(got, "(b)") {
			t.Errorf("the log says %s", got)
		}
	})
}

// TestStopWhileLogUnreachable: a stop does not wait for a log that cannot be written.
func TestStopWhileLogUnreachable(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", "")
		unfill := w.fillLog()
		answered := make(chan wireReply)
		go func() { answered <- w.ask("document.create.c.b", "{}") }()
		time.Sleep(time.Second)
		last := w.publish("document.create.c.m", `{}`)
		w.stop()
		if r := <-answered; r.code != 504 { // the outcome is unknown
			t.Errorf("the write under way came out with %s", r)
		}
		unfill()
		w.start()
		w.judged(last)
		w.want(200, "document.get.c.m", "")
	})
}

// TestAppendRefusedBoundsFences: a log that accepts the fence but not the event is not filled
// with fences, and no request waits for ever.
func TestAppendRefusedBoundsFences(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", "")
		limit := func(bytes int32) {
			config := w.processor.service.Log.Stream.CachedInfo().Config
			config.MaxMsgSize = bytes
			_, err := w.processor.service.Log.JS.UpdateStream(w.ctx(), config)
			w.check(err)
		}
		limit(1024)
		before := w.end()
		if r := w.ask("document.create.c.a", `{"long":"`+strings.Repeat("x", 2000)+`"}`); r.code != 503 {
			t.Errorf("what the log refuses came out with %s", r)
		}
		if fences := w.end() - before; fences > 2*writer.MaxRecoveries {
			t.Errorf("%d fences were logged meanwhile", fences)
		}
		limit(-1)
		w.want(404, "document.get.c.a", "")
		time.Sleep(writer.MaxPause)
		w.want(201, "document.create.c.a", "{}")
	})
}

// TestProjectionInUse: a projection that another processor has open is left alone.
func TestProjectionInUse(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", "")
	if _, err := snapshot.OpenProjection(t.Context(), w.processor.log, w.processor.retention.Snapshots, w.processor.options.forSnapshots()); err == nil || !strings.Contains(err.Error(), "lock") {
		t.Errorf("opened a second time: %v", err)
	}
	w.want(201, "document.create.c.a", "{}")
	w.stop()
	w.start()
	if strings.Contains(w.logs.String(), "folded again") {
		t.Error("the projection was thrown away")
	}
	w.want(200, "document.get.c.a", "")
}

// TestLocalIsTheService: a Local and a processor behind NATS, asked the same at the same
// times, give the same replies and the same log.
func TestLocalIsTheService(t *testing.T) {
	for range stress.Pick(2, 40) {
		random := stress.Rand(t)
		inBubble(t, func(w *wire) {
			local, err := offline.NewLocal(time.Now().UnixMilli())
			w.check(err)
			defer func() { w.check(local.Close()) }()
			_, err = local.Adopt(time.Now().UnixMilli(), w.everything()) // a WriterStarted
			w.check(err)
			for i := range stress.Pick(400, 4000) {
				synctest.Wait() // all due work is done
				if d := draw(random, 0, 0, 0, 1, 250, 999, 1000, 3000, 40_000, 200_000); d > 0 {
					time.Sleep(time.Duration(d) * time.Millisecond)
					synctest.Wait()
				}
				w.check(local.Advance(time.Now().UnixMilli()))
				r := drawRequest(random)
				if r.submit {
					// JetStream deduplicates a Nats-Msg-Id within this time.
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					w.check(local.Advance(time.Now().UnixMilli()))
					w.judged(w.publish(r.tail, r.body, r.headers...))
					_, err := local.Submit(r.tail, r.header(), []byte(r.body))
					w.check(err)
					continue
				}
				want := w.ask(r.tail, r.body, r.headers...)
				o, err := local.Request(r.tail, r.header(), []byte(r.body))
				w.check(err)
				got := wireReply{code: o.Code, seq: o.Seq, body: o.Body}
				if o.Fault != nil {
					got.error, got.message, got.body = o.Fault.Name, o.Fault.Message, nil
					want.body = nil
				}
				if plain(got) != plain(want) {
					w.t.Fatalf("request %d, %+v at %d\nlocal:   %d %s\nservice: %d %s", i, r, time.Now().UnixMilli(), got.seq, got, want.seq, want)
				}
			}
			synctest.Wait()
			w.check(local.Advance(time.Now().UnixMilli()))
			if got, want := lines(local.Log()), lines(w.everything()); got != want {
				w.t.Fatalf("local:\n%s\nservice:\n%s", got, want)
			}
			if got, want := local.Reader.Digest(), w.processor.store.Digest().String(); got != want {
				w.t.Fatalf("digest %s, of the service %s", got, want)
			}
		})
	}
}
