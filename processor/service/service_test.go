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
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/processor/service"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/test/harness"
)

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
	w := processortest.New(t, processortest.OnDisk(t))
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
