package service_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/processortest"
	"github.com/lapsedb/lapse/test/attack"
	"github.com/lapsedb/lapse/test/stress"
)

// poisonGroup is the number of messages sent before their outcome is checked.
const poisonGroup = 50

// poisoned returns a wire with collections to attack, and the source of attacks.
func poisoned(t *testing.T) (*processortest.Wire, attack.Source) {
	t.Helper()
	source := attack.Source{Rand: stress.Rand(t)}
	w := processortest.New(t)
	w.Want(201, "collection.create.c", `{"defaultTtl":3600,"indexingPolicy":{"includedPaths":[{"path":"/n"},{"path":"/s"}]}}`)
	w.Want(201, "collection.create.sound", "")
	return w, source
}

// works checks that valid requests of all kinds are served.
func works(w *processortest.Wire) {
	w.T.Helper()
	w.Ask("collection.create.c", `{"defaultTtl":3600}`) // an attack may have deleted it
	w.Want(201, "document.create.sound.s", `{"n":1}`)
	w.Want(200, "document.get.sound.s", "")
	w.Want(200, "query.sound", `{"where":"doc.n == 1","limit":1}`)
	w.Want(200, "batch.sound", `{"operations":[{"op":"get","id":"s"}]}`)
	w.Want(200, "history.sound.s", `{"limit":1}`)
	w.Want(204, "document.delete.sound.s", "")
	w.Want(200, "status", "")
}

// refold checks that folding the log again gives the same content.
func refold(w *processortest.Wire) {
	w.T.Helper()
	for {
		seq, before := w.Inside().Store.Cursor().Seq, w.Content()
		w.Stop()
		w.RemoveProjection()
		w.Start()
		after := w.Content()
		if after == before {
			break
		}
		// Some documents live only for a second or two. Their expiries are in the log,
		// and soon none is left.
		if w.Summary(seq) == "" {
			w.T.Errorf("folded again it is\n%.10000s, before\n%.10000s", after, before)
			break
		}
	}
	works(w)
}

// TestPoison: every request gets exactly one reply with a code, every published mutation
// is judged once, in order, and the next request is served.
func TestPoison(t *testing.T) {
	w, source := poisoned(t)
	js, err := jetstream.New(w.Client)
	w.Check(err)
	inbox := w.Client.NewInbox()
	answers, err := w.Client.SubscribeSync(inbox + ".*")
	w.Check(err)
	codes, published, last := make(map[int]int), make(map[uint64]attack.Message), uint64(0)
	for range stress.Pick(20, 1000) {
		sent := make(map[string]attack.Message)
		for i := range poisonGroup {
			m := source.Request()
			reply := fmt.Sprintf("%s.%d", inbox, i)
			sent[reply] = m
			w.Check(w.Client.PublishMsg(&nats.Msg{Subject: "lapse.main.api." + m.Tail, Reply: reply, Data: []byte(m.Body), Header: m.Headers}))
			if m = source.Mutation(); source.IntN(10) == 0 {
				m = source.Request()
			}
			ack, err := js.PublishMsg(w.Ctx(), &nats.Msg{Subject: "lapse.main.mutations." + m.Tail, Data: []byte(m.Body), Header: m.Headers})
			if err != nil {
				t.Fatalf("%v: %v", m, err)
			}
			if !ack.Duplicate { // JetStream deduplicates within a tenth of a second
				last = ack.Sequence
				published[last] = m
			}
		}
		for len(sent) > 0 {
			answer, err := answers.NextMsg(processortest.Patience)
			if err != nil {
				t.Fatalf("no answer to %v: %v\n%s", sent, err, w.Logs)
			}
			m, ok := sent[answer.Subject]
			if !ok {
				t.Fatalf("a second answer: %q %q", answer.Header, answer.Data)
			}
			delete(sent, answer.Subject)
			r, err := processortest.ReadReply(answer)
			if err != nil {
				t.Fatalf("%v: %v", m, err)
			}
			codes[r.Code]++
			if r.Code >= 500 || r.Code == 429 {
				t.Errorf("%v: %s", m, r)
			}
		}
		w.Judged(last)
		works(w)
	}
	if n, _, _ := answers.Pending(); n > 0 {
		t.Errorf("%d answers too many", n)
	}
	counts, next := make(map[string]int), uint64(1)
	for _, e := range w.Everything() {
		if e.Cause == 0 {
			continue
		}
		if e.Cause != next {
			t.Fatalf("mutation %d is judged where %d is next: %v", e.Cause, next, published[e.Cause])
		}
		next++
		counts[e.Type.String()]++
		if len(e.Body) > 0 && !json.Valid(e.Body) {
			t.Errorf("%v became %s with %.200q", published[e.Cause], e.Type, e.Body)
		}
	}
	if next != last+1 {
		t.Errorf("%d of %d mutations were judged", next-1, last)
	}
	t.Log(codes, counts)
	if strings.Contains(w.Logs.String(), "panic") {
		t.Errorf("something panicked:\n%s", w.Logs)
	}
	refold(w)
}

// TestPoisonLog: the writer continues behind any foreign message in the log, and folding
// the log again gives the same content.
func TestPoisonLog(t *testing.T) {
	w, source := poisoned(t)
	for range stress.Pick(6, 200) {
		for range poisonGroup {
			m := source.Event()
			var headers []string
			for name, values := range m.Headers {
				headers = append(headers, name, values[0])
			}
			w.Intrude(m.Tail, m.Body, headers...)
		}
		works(w)
	}
	t.Logf("%d were foreign", w.Inside().Store.Cursor().Foreign)
	refold(w)
}

// TestPoisonHeaders: header lines that no client library writes get a reply, and
// mutations with them are judged.
func TestPoisonHeaders(t *testing.T) {
	w, source := poisoned(t)
	conn := w.Raw()
	go func() { _, _ = io.Copy(io.Discard, conn) }() // discard what the server sends
	inbox := w.Client.NewInbox()
	answers, err := w.Client.SubscribeSync(inbox)
	w.Check(err)
	w.Check(w.Client.Flush())
	lines := []string{"NATS/1.0\r\n\r\n", "NATS/1.0\r\n", "NATS/1.0", "NATS/1.0 503\r\n\r\n", "NATS/1.0 404 No Messages\r\n\r\n", "NATS/1.0 100\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "\r\n\r\n", "\x00",
		"NATS/1.0\r\n: x\r\n\r\n", "NATS/1.0\r\nx\r\n\r\n", "NATS/1.0\r\n x: y\r\n\r\n", "NATS/1.0\r\nIf-Match: 1\r\nIf-Match: 2\r\n\r\n", "NATS/1.0\r\nIf-Match:\r\n\r\n", "NATS/1.0\r\nNats-Msg-Id: a\r\n b\r\n\r\n",
		"NATS/1.0\nIf-Match: 1\n\n", "NATS/1.0\r\nNats-Msg-Id: \xff\xfe\r\n\r\n", "NATS/1.0\r\nNats-Msg-Id: \x00\r\n\r\n", "NATS/1.0\r\nLapse-Min-Seq: 0\r\nLapse-Min-Seq: x\r\n\r\n", "NATS/1.0\r\n" + strings.Repeat("A: b\r\n", 10_000) + "\r\n"}
	for range stress.Pick(200, 5000) {
		line := attack.Of(source, lines...)
		if source.IntN(2) == 0 {
			line = source.Bytes(line)
		}
		if line == "" {
			continue
		}
		op := attack.Of(source, "document.upsert.c.a", "document.delete.c.a", "document.get.c.a", "query.c")
		body := attack.Of(source, "", "{}")
		_, err := fmt.Fprintf(conn, "HPUB lapse.main.api.%s %s %d %d\r\n%s%s\r\n", op, inbox, len(line), len(line)+len(body), line, body)
		w.Check(err)
		m, err := answers.NextMsg(processortest.Patience)
		if err != nil {
			t.Fatalf("%s with %q: %v\n%s", op, line, err, w.Logs)
		}
		if r, err := processortest.ReadReply(m); err != nil || r.Code >= 500 {
			t.Errorf("%s with %q: %s %v", op, line, r, err)
		}
		_, err = fmt.Fprintf(conn, "HPUB lapse.main.mutations.%s %d %d\r\n%s%s\r\n", op, len(line), len(line)+len(body), line, body)
		w.Check(err)
	}
	// Every mutation that JetStream has stored is judged.
	works(w)
	w.Eventually("all judged", func() bool {
		last := w.Stream("LAPSE_main_MUTATIONS").CachedInfo().State.LastSeq
		return last > 0 && w.Inside().Store.Cursor().Mutations == last
	})
	next := uint64(1)
	for _, e := range w.Everything() {
		if e.Cause != 0 {
			if e.Cause != next {
				t.Fatalf("mutation %d is judged where %d is next", e.Cause, next)
			}
			next++
		}
	}
	refold(w)
}

// FuzzRequest: any request gets one reply, with a code below 500.
func FuzzRequest(f *testing.F) {
	source := attack.Source{Rand: rand.New(rand.NewPCG(1, 0))} // the same seeds in every process
	for range 200 {
		m := source.Request()
		f.Add(m.Tail, []byte(m.Body))
	}
	w := processortest.New(f)
	w.Want(201, "collection.create.c", `{"defaultTtl":3600,"indexingPolicy":{"includedPaths":[{"path":"/n"}]}}`)
	f.Fuzz(func(t *testing.T, tail string, body []byte) {
		if len(body) > 1<<20 {
			return
		}
		m, err := w.Client.Request("lapse.main.api."+attack.Subject(tail), body, processortest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := processortest.ReadReply(m); err != nil || r.Code >= 500 {
			t.Fatal(r, err)
		}
	})
}
