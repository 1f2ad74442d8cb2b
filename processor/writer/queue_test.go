package writer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/harness"
)

const deferredDocuments = 8

// deferredBench returns a term with large documents in c.
func deferredBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	t.Cleanup(func() {
		b.Leave()
		_ = b.store.Close()
	})
	b.propose("collection.create.c", "", nil)
	for i := range deferredDocuments {
		b.propose(fmt.Sprintf("document.create.c.d%d", i), `{"x":"`+strings.Repeat("x", 700<<10)+`"}`, nil)
		b.round(-1, true)
	}
	return b
}

// TestBatchPieces: between the pieces of a batch others are decided. After a failed append
// a batch goes on if the log has all that was decided of it, begins again if it has nothing,
// and is a 504 otherwise.
func TestBatchPieces(t *testing.T) {
	for stored, want := range map[int]string{-1: "200", 0: "200", 1: "504 timeout"} {
		b := deferredBench(t)
		var operations []string
		for i := range deferredDocuments {
			operations = append(operations, fmt.Sprintf(`{"op":"delete","id":"d%d"}`, i))
		}
		batch, fault := schema.ParseBatch("c", []byte(`{"operations":[`+strings.Join(operations, ",")+`]}`))
		if fault != nil {
			t.Fatal(fault)
		}
		var got []string
		if !b.Submit(&Proposal{Batch: batch, MaxReply: 1 << 20, Done: func(o machine.Outcome) {
			got = append(got, fmt.Sprint("batch ", shown(o), strings.Count(string(o.Body), "204")))
		}}) {
			t.Fatal("the queue is full")
		}
		for range 2 {
			b.propose("document.upsert.c.other", "{}", func(o machine.Outcome) { got = append(got, "other") })
		}
		b.round(stored, false)
		for range 2 * deferredDocuments {
			b.round(-1, true)
		}
		deleted := 0
		for _, e := range b.log {
			if e.Type == schema.DocumentDeleted {
				deleted++
			}
		}
		all := map[string]int{"200": deferredDocuments, "504 timeout": 0}[want]
		if last := fmt.Sprint("batch ", want, all); len(got) != 3 || stored != 1 && got[2] != last || stored == 1 && got[0] != last {
			t.Errorf("of %d events stored: %q, want others and then %s", stored, got, last)
		}
		if want == "200" && deleted != deferredDocuments || want != "200" && deleted >= deferredDocuments {
			t.Errorf("of %d events stored: %d documents are deleted", stored, deleted)
		}
	}
}

func shown(o machine.Outcome) string {
	if o.Fault != nil {
		return fmt.Sprint(o.Code, " ", o.Fault.Name)
	}
	return fmt.Sprint(o.Code)
}

// slowLog is JetStream with the events of a bench, whose messages can be read once they are
// let through.
type slowLog struct {
	jetstream.JetStream
	let  chan struct{}
	read atomic.Int32
}

func newSlowLog(b *bench) *slowLog {
	ns := harness.StartNATS(b.t, &server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true})
	nc := harness.Dial(b.t, "", nats.InProcessServer(ns))
	js, err := jetstream.New(nc)
	b.must(err)
	s := &slowLog{JetStream: js, let: make(chan struct{})}
	_, err = nc.Subscribe("$JS.API.STREAM.MSG.GET.LAPSE_main", func(m *nats.Msg) {
		var which struct{ Seq uint64 }
		_ = json.Unmarshal(m.Data, &which)
		select {
		case <-s.let:
		case <-b.t.Context().Done():
			return
		}
		s.read.Add(1)
		_ = m.Respond(message(b.log, which.Seq))
	})
	b.must(err)
	return s
}

// message returns JetStream's reply to a request for a message of a log.
func message(log []*schema.Event, seq uint64) []byte {
	var reply server.JSApiMsgGetResponse
	reply.Error = server.NewJSNoMessageFoundError()
	if i := slices.IndexFunc(log, func(e *schema.Event) bool { return e.Seq == seq }); i >= 0 {
		e := log[i]
		header := "NATS/1.0\r\n"
		e.Headers(func(name, value string) { header += name + ": " + value + "\r\n" })
		reply.Error, reply.Message = nil, &server.StoredMsg{
			Subject: fmt.Sprintf("lapse.main.events.%s.%s", e.Collection, e.Type), Sequence: seq, Header: []byte(header + "\r\n"), Data: e.Body,
		}
	}
	text, _ := json.Marshal(reply)
	return text
}

// TestRestoreDefers: while the log is read for a restore, others are decided, but for
// later mutations of the stream. A restore whose document changed meanwhile is read again.
// A touched version is read in two messages.
func TestRestoreDefers(t *testing.T) {
	b := deferredBench(t)
	slow := newSlowLog(b)
	b.Term.log.DB, b.Term.log.JS = schema.DatabaseName("main"), slow
	for range 50 {
		b.propose("document.touch.c.d0", "", nil)
	}
	b.round(-1, true)
	b.propose("document.delete.c.d0", "", nil)
	b.propose("document.delete.c.d1", "", nil)
	b.round(-1, true)
	touched := b.log[len(b.log)-3]
	if touched.Type != schema.DocumentTouched {
		t.Fatalf("%+v", touched)
	}
	var got []string
	note := func(name string) func(machine.Outcome) {
		return func(o machine.Outcome) { got = append(got, name+" "+shown(o)) }
	}
	b.propose("document.restore.c.d0", fmt.Sprintf(`{"version":"%d"}`, touched.Seq), note("restore"))
	b.propose("document.upsert.c.other", "{}", note("other"))
	b.Mutations <- schema.PublishedMutation(1, "document.restore.c.d1", nil, nil)
	b.Mutations <- schema.PublishedMutation(2, "document.upsert.c.p", nil, []byte("{}"))
	for range 3 {
		b.round(-1, true)
	}
	if fmt.Sprint(got) != "[other 200]" && fmt.Sprint(got) != "[other 201]" || b.recalling != 2 || b.store.Cursor().Mutations != 0 {
		t.Fatalf("%q are answered, %d are read, %d mutations are judged", got, b.recalling, b.store.Cursor().Mutations)
	}
	close(slow.let)
	recalled := func() {
		b.resumeRecalled(<-b.recalled)
	}
	recalled()
	recalled()
	// d1 has another last incarnation than the one read.
	b.queue, got = append([]*Proposal{
		{Mutation: schema.NewMutation("document.create.c.d1", []byte(`{"n":2}`)), Done: note("create")},
		{Mutation: schema.NewMutation("document.delete.c.d1", nil), Done: note("delete")},
	}, b.queue...), nil
	b.round(-1, true)
	for b.recalling > 0 {
		recalled()
		b.round(-1, true)
	}
	b.round(-1, true)
	if fmt.Sprint(got) != "[create 201 delete 204 restore 201]" || b.store.Cursor().Mutations != 2 {
		t.Errorf("%q are answered, %d mutations are judged", got, b.store.Cursor().Mutations)
	}
	c, _ := b.store.Collection("c")
	if r, ok, err := b.store.Document(c, "d1"); !ok || err != nil || string(r.Body) != `{"id":"d1","n":2}` {
		t.Errorf("d1 is restored as %.100s, %t %v", r.Body, ok, err)
	}
	if read := slow.read.Load(); read > 6 {
		t.Errorf("%d messages are read for two restores", read)
	}
}

// TestChangeLetsOthersGo: while a change of a collection expires its due documents, mutations
// and changes of others are decided at once, mutations of that collection after it.
func TestChangeLetsOthersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.store.Close()
		defer b.Leave()
		b.propose("collection.create.c", "", nil)
		b.propose("collection.create.other", "", nil)
		b.round(-1, true)
		const documents = 10_000
		for i := range documents {
			b.propose(fmt.Sprintf("document.create.c.d%d", i), "{}", nil)
			if i%500 == 499 {
				b.round(-1, true)
			}
		}
		time.Sleep(5 * time.Second)
		var got []string
		note := func(name string) func(machine.Outcome) {
			return func(o machine.Outcome) { got = append(got, name+" "+shown(o)) }
		}
		b.propose("collection.replace.c", `{"defaultTtl":1}`, note("due"))
		b.round(-1, true)
		b.propose("collection.replace.c", `{"defaultTtl":-1}`, note("change"))
		b.propose("document.create.c.late", "{}", note("late"))
		meanwhile := 0
		for b.round(-1, true); slices.ContainsFunc(b.queue, (*Proposal).changes); meanwhile++ {
			answered := len(got)
			if meanwhile == 1 {
				b.propose("collection.replace.other", `{"previousImages":false}`, note("aside"))
			}
			b.propose(fmt.Sprintf("document.create.other.d%d", meanwhile), "{}", note("other"))
			b.round(-1, true)
			if len(got) == answered {
				t.Fatalf("in round %d no other mutation is answered", meanwhile)
			}
		}
		b.round(-1, true)
		change := slices.Index(got, "change 200")
		if aside := slices.Index(got, "aside 200"); aside < 0 || aside > change {
			t.Errorf("the change of another collection waits: %q", got)
		}
		if meanwhile < 3 || got[0] != "due 200" || change < 3 || slices.Index(got, "late 201") != change+1 {
			t.Errorf("%d are decided meanwhile: %q", meanwhile, got)
		}
		expired := 0
		for _, e := range b.log {
			switch {
			case e.Type == schema.DocumentExpired:
				expired++
			case e.Type == schema.CollectionReplaced && string(e.Collection) == "c" && expired != 0 && expired != documents:
				t.Errorf("the collection changed after %d expiries", expired)
			}
		}
	})
}

// TestQueueLimited: a change and one mutation of its collection stay in a queue of two; later
// ones are a 429.
func TestQueueLimited(t *testing.T) {
	b := newBench(t)
	defer b.store.Close()
	defer b.Leave()
	b.config.Queue = 2
	b.propose("collection.create.c", "", nil)
	b.round(-1, true)
	var got []string
	for i, tail := range []string{"document.create.c.a", "collection.replace.c", "document.create.c.b", "document.create.c.d", "document.create.c.e"} {
		b.propose(tail, "{}", func(o machine.Outcome) { got = append(got, fmt.Sprint(i, " ", shown(o))) })
	}
	for range 3 {
		b.round(-1, true)
	}
	if want := "[3 429 overloaded 4 429 overloaded 0 201 1 200 2 201]"; fmt.Sprint(got) != want {
		t.Errorf("%q are answered, want %s", got, want)
	}
}
