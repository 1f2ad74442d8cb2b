package processor

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// load writes concurrently until ending is closed. Then verify checks that the log has
// every acknowledged write once, and no refused one.
type load struct {
	*wire
	ending chan struct{}
	wg     sync.WaitGroup

	mu   sync.Mutex
	told map[string]bool // by n in the document: whether the write was acknowledged
}

func (w *wire) load(writers int) *load {
	w.t.Helper()
	if w.ask("collection.create.load", `{"defaultTtl":3600}`).code != 201 {
		w.t.Fatal("no collection for the load")
	}
	l := &load{wire: w, ending: make(chan struct{}), told: make(map[string]bool)}
	for i := range writers {
		l.wg.Go(func() { l.request(i) })
	}
	return l
}

// note records whether the log must have write n, or only may have it. A refused write
// must be missing and is not noted.
func (l *load) note(n string, acknowledged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[n] = acknowledged
}

func (l *load) ended() bool {
	select {
	case <-l.ending:
		return true
	default:
		return false
	}
}

func (l *load) request(writer int) {
	random := rand.New(rand.NewPCG(1, uint64(writer)))
	for i := 0; !l.ended(); i++ {
		n := fmt.Sprintf("%d-%d", writer, i)
		m, err := l.client.Request(fmt.Sprintf("lapse.main.api.document.upsert.load.%d", random.IntN(50)), fmt.Appendf(nil, `{"n":%q}`, n), patience)
		if err != nil {
			l.t.Errorf("write %s: %v", n, err)
			return
		}
		switch r, err := readReply(m); {
		case err != nil:
			l.t.Errorf("write %s: %v", n, err)
		case r.code < 300:
			l.note(n, true)
		case r.code == 504:
			l.note(n, false) // may or may not be applied
		case r.code != 503 && r.code != 429:
			l.t.Errorf("write %s: %s", n, r)
		}
	}
}

func (l *load) verify() {
	l.t.Helper()
	found := make(map[string]int)
	for _, e := range l.wantTimeline(0) {
		if e.Collection == "load" && (e.Type == schema.DocumentCreated || e.Type == schema.DocumentReplaced) {
			var document struct{ N string }
			l.check(json.Unmarshal(e.Body, &document))
			found[document.N]++
		}
	}
	acknowledged := 0
	for n, ok := range l.told {
		if ok {
			acknowledged++
			if found[n] == 0 {
				l.t.Errorf("write %s was acknowledged and is lost", n)
			}
		}
	}
	for n, times := range found {
		if _, told := l.told[n]; !told || times > 1 {
			l.t.Errorf("write %s is there %d times; was it told or in doubt: %v", n, times, told)
		}
	}
	if acknowledged == 0 {
		l.t.Error("nothing was acknowledged")
	}
	l.t.Logf("%d of %d writes acknowledged", acknowledged, len(l.told))
}

// listening opens the log for appends, without a processor.
func (w *wire) listening() *eventlog.Log {
	w.t.Helper()
	log, err := eventlog.Open(w.ctx(), w.connections(), eventlog.Config{Database: "main"})
	w.check(err)
	w.t.Cleanup(log.Close)
	w.check(log.Listen())
	return log
}

// event returns a fact to append at a sequence.
func event(seq uint64) projections.Fact {
	return projections.Fact{Event: &schema.Event{Seq: seq, Time: 1, Type: schema.CollectionCreated, Collection: "c"}}
}

// TestFence: if a foreign message takes the sequence of an event, the log refuses all
// appends in flight, even one whose predecessor would have had that sequence.
func TestFence(t *testing.T) {
	w := newWire(t)
	w.stop()
	log := w.listening()
	w.check(log.Append([]projections.Fact{event(2)}, eventlog.Single))
	if a := <-log.Acks; a.Err != nil || a.Seq != 2 {
		t.Fatalf("the first event: %+v", a)
	}
	w.intrude("c.Foreign", "")
	w.check(log.Append([]projections.Fact{event(3)}, eventlog.Single))
	w.check(log.Append([]projections.Fact{event(4)}, eventlog.Single))
	w.check(log.Append([]projections.Fact{event(5), event(6)}, eventlog.Single))
	for range 3 {
		if a := <-log.Acks; a.Err == nil {
			t.Errorf("event %d came into the log behind a foreign message", a.Seq)
		}
	}
	if end := w.end(); end != 3 {
		t.Errorf("the log ends at %d, want the foreign message at 3", end)
	}
}

// TestForeignMessages: foreign messages in the log are skipped, counted and reported, and
// fail no write.
func TestForeignMessages(t *testing.T) {
	for _, durability := range []Durability{OS, Fsync} {
		t.Run(string(durability), func(t *testing.T) {
			w := newWire(t, func(o *Options) { o.Durability = durability })
			l := w.load(8)
			foreign := []struct {
				tail, body string
				headers    []string
			}{
				{"load.Nonsense", "", nil},
				{"load.DocumentCreated", "no event", nil},
				{"load", "", nil},
				{"a.b.c.d", "{}", nil},
				{"load.DocumentCreated", `{"id":"x"}`, []string{"Lapse-Time", "1", "Lapse-Id", "%zz"}},
				{"load.DocumentReplaced", `{"id":"1","n":"foreign"}`, []string{"Lapse-Time", "1", "Lapse-Id", "1", "Lapse-Previous", "18446744073709551615"}},
				{"_.WriterStarted", "poison", nil},
				{"load.DocumentExpired", `{}`, []string{"Lapse-Time", "1", "Lapse-Id", "1", "Lapse-Previous", "2", "Lapse-Deadline", "x", "Lapse-Ttl", "y", "Lapse-Rule", "z"}},
			}
			for _, f := range foreign {
				w.intrude(f.tail, f.body, f.headers...)
				time.Sleep(20 * time.Millisecond) // of load
			}
			close(l.ending)
			l.wg.Wait()
			w.want(201, "document.create.load.last", "{}") // behind the last foreign message
			if n := w.processor.store.Cursor().Foreign; n != uint64(len(foreign)) {
				t.Errorf("%d foreign messages were counted, want %d\n%s", n, len(foreign), w.logs)
			}
			if n := strings.Count(w.logs.String(), "foreign message in the log skipped"); n < len(foreign)-1 {
				t.Errorf("%d foreign messages were reported, want %d", n, len(foreign))
			}
			before := w.content()
			w.restart()
			w.stop()
			w.removeProjection()
			w.start()
			if n := w.processor.store.Cursor().Foreign; n != uint64(len(foreign)) {
				t.Errorf("%d foreign messages were counted in catching up, want %d", n, len(foreign))
			}
			if after := w.content(); after != before {
				t.Errorf("folded again it is\n%s, before\n%s", after, before)
			}
			w.want(200, "document.upsert.load.last", "{}")
		})
	}
}

// TestLostAcknowledgements: events in the log whose acknowledgement was lost are found
// there, not appended again.
func TestLostAcknowledgements(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{"defaultTtl":3600}`)
		seq := w.end()
		w.check(w.processor.writer.Log.Unlisten())
		began := time.Now()
		answers := make(chan wireReply)
		go func() { answers <- w.ask("document.create.c.a", `{}`) }()
		go func() { answers <- w.ask("document.create.c.a", `{}`) }()
		go func() {
			answers <- w.ask("batch.c", `{"atomic":true,"operations":[{"op":"create","id":"b","body":{}},{"op":"create","id":"c","body":{}}]}`)
		}()
		published := w.publish("document.create.c.m", `{}`)
		codes := map[int]int{}
		for range 3 {
			codes[(<-answers).code]++
		}
		if codes[201] != 1 || codes[409] != 1 || codes[200] != 1 {
			t.Errorf("the answers are %v", codes)
		}
		if waited := time.Since(began); waited < writer.AckTimeout || waited > 2*writer.AckTimeout {
			t.Errorf("it was noticed after %s", waited)
		}
		w.judged(published)
		w.check(w.processor.writer.Log.Unlisten()) // of a batch alone in flight
		w.want(200, "batch.c", `{"atomic":true,"operations":[{"op":"create","id":"d","body":{}},{"op":"create","id":"e","body":{}}]}`)
		created := map[schema.DocumentID]int{}
		for _, e := range w.events() {
			if e.Seq > seq {
				created[e.ID]++
			}
		}
		if fmt.Sprint(created) != "map[a:1 b:1 c:1 d:1 e:1 m:1]" {
			t.Errorf("the log has %v", created)
		}
	})
}

// TestProjectionIsACache: whatever happens to the projection files while no processor
// runs, the next one serves the content of the log.
func TestProjectionIsACache(t *testing.T) {
	w := newWire(t, func(o *Options) { o.Projection.MemTableBytes = 64 << 10 })
	w.want(201, "collection.create.c", `{"defaultTtl":3600}`)
	w.want(201, "collection.create.gone", `{}`)
	for i := range 600 {
		w.want(201, fmt.Sprintf("document.create.c.%d", i), fmt.Sprintf(`{"p":"%s"}`, strings.Repeat("x", 500+i)))
	}
	w.want(204, "collection.delete.gone", "")
	w.want(204, "document.delete.c.7", "")
	w.judged(w.publish("document.upsert.c.m", `{"ttl":4000}`))
	change := func(pattern string, do func(file string, size int64) error) func() {
		return func() {
			files, err := filepath.Glob(filepath.Join(w.options.Dir, pattern))
			if err != nil || len(files) == 0 {
				t.Fatalf("%s: %v, %v", pattern, files, err)
			}
			for _, file := range files {
				info, err := os.Stat(file)
				w.check(err)
				w.check(do(file, info.Size()))
			}
		}
	}
	remove := func(file string, _ int64) error { return os.Remove(file) }
	halve := func(file string, size int64) error { return os.Truncate(file, size/2) }
	overwrite := func(file string, size int64) error {
		return os.WriteFile(file, []byte(strings.Repeat("?", int(size))), 0o600)
	}
	for _, damage := range []struct {
		name string
		do   func()
		seen bool // the projection is unusable
	}{
		{"removed", w.removeProjection, false},
		{"tables truncated", change("*.sst", halve), true},
		{"tables removed", change("*.sst", remove), true},
		{"manifest truncated", change("MANIFEST-*", halve), false},
		{"manifest overwritten", change("MANIFEST-*", overwrite), true},
		{"manifest removed", change("MANIFEST-*", remove), false},
		{"markers removed", change("marker.*", remove), false},
		{"a file in its place", func() { w.removeProjection(); w.check(os.WriteFile(w.options.Dir, []byte("no directory"), 0o600)) }, true},
	} {
		t.Run(damage.name, func(t *testing.T) {
			before := w.content()
			w.stop()
			damage.do()
			w.logs.reset()
			w.start()
			if after := w.content(); after != before {
				t.Errorf("it is now\n%.2000s\n, before\n%.2000s", after, before)
			}
			if told := strings.Contains(w.logs.String(), "folded again"); damage.seen && !told {
				t.Errorf("nobody was told:\n%s", w.logs)
			}
			w.want(200, "document.upsert.c.1", "{}")
			w.want(200, "history.c.7", "")
		})
	}
}

// TestProjectionOfAnotherLog: a start detects a projection of another log, or of a log
// that went back.
func TestProjectionOfAnotherLog(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", `{}`)
	w.want(201, "document.create.c.old", `{}`)
	w.want(204, "collection.delete.c", "")
	js, err := jetstream.New(w.log)
	w.check(err)

	// The log is gone: the projection may be its only trace.
	w.stop()
	w.check(js.DeleteStream(w.ctx(), "LAPSE_main"))
	for range 2 {
		if _, err := Start(w.ctx(), w.connections(), w.options); err == nil || !strings.Contains(err.Error(), "belongs to a deleted log: restore the stream") || strings.Contains(err.Error(), "\n") {
			t.Fatalf("it starts with %v", err)
		}
	}
	// Another log takes its place.
	kept := filepath.Join(w.dir, "kept")
	w.check(os.Rename(w.options.Dir, kept))
	w.start()
	w.stop()
	w.check(os.RemoveAll(w.options.Dir))
	w.check(os.Rename(kept, w.options.Dir))
	w.start()
	if !strings.Contains(w.logs.String(), "another stream") {
		t.Errorf("nobody was told:\n%s", w.logs)
	}
	w.refused(404, "collection_not_found", "document.get.c.old", "")
	w.refused(404, "collection_not_found", "history.c.old", "")
	w.want(201, "collection.create.c", `{}`)
	w.want(201, "document.create.c.new", `{}`)

	// The log lost its end and continued with other events.
	w.logs.reset()
	w.stop()
	config := w.stream("LAPSE_main").CachedInfo().Config
	events := w.everything()
	w.check(js.DeleteStream(w.ctx(), "LAPSE_main"))
	_, err = js.CreateStream(w.ctx(), config)
	w.check(err)
	again := func(e *schema.Event) {
		t.Helper()
		var headers []string
		e.Headers(func(name, value string) { headers = append(headers, name, value) })
		w.intrude(e.EventTokens(), string(e.Body), headers...)
	}
	for _, e := range events[:3] {
		again(e)
	}
	w.options.AcceptLostEnd = true
	w.start()
	if !strings.Contains(w.logs.String(), "the log ends at 3") {
		t.Errorf("nobody was told:\n%s", w.logs)
	}
	w.want(404, "document.get.c.new", "")
	w.want(201, "document.create.c.other", `{}`)

	w.logs.reset()
	w.stop()
	events = w.everything()
	w.check(js.DeleteStream(w.ctx(), "LAPSE_main"))
	_, err = js.CreateStream(w.ctx(), config)
	w.check(err)
	for _, e := range events {
		if e.ID == "other" {
			e.ID, e.Body = "another", []byte(`{"id":"another"}`)
		}
		again(e)
	}
	w.start()
	w.want(404, "document.get.c.other", "")
	w.want(200, "document.get.c.another", "")
	w.stop()
}

// TestLogTruncatedWhileRunning: a log that comes back shorter ends the processor, which
// would serve events that the log lacks. Another processor starts on the rest.
func TestLogTruncatedWhileRunning(t *testing.T) {
	inBubble(t, func(w *wire) {
		w.want(201, "collection.create.c", `{}`)
		w.want(201, "document.create.c.a", `{}`)
		config, events := w.stream("LAPSE_main").CachedInfo().Config, w.everything()
		js, err := jetstream.New(w.log)
		w.check(err)
		w.check(js.DeleteStream(w.ctx(), "LAPSE_main"))
		_, err = js.CreateStream(w.ctx(), config)
		w.check(err)
		for _, e := range events[:2] {
			var headers []string
			e.Headers(func(name, value string) { headers = append(headers, name, value) })
			w.intrude(e.EventTokens(), string(e.Body), headers...)
		}
		w.want(504, "document.create.c.b", `{}`) // the outcome is unknown
		if err := w.processor.Stop(); err == nil || !strings.Contains(err.Error(), "ends at 2 but had reached 3") {
			t.Errorf("it ended with %v", err)
		}
		w.options.AcceptLostEnd = true
		w.start()
		w.want(404, "document.get.c.a", "")
		w.want(201, "document.create.c.a", `{}`)
	})
}

// TestSecondWriter: of two processors over one log the last one started writes, and the
// other one ends instead of fighting.
func TestSecondWriter(t *testing.T) {
	w := newWire(t)
	w.want(201, "collection.create.c", `{}`)
	first := w.processor
	w.options.Dir += "-2"
	service, err := w.connect()
	w.check(err)
	defer func() { service.Close() }()
	w.service, service = service, w.service
	w.start()
	second := w.processor
	// Whichever processor is asked, its reply is true.
	for i := range 20 {
		r := w.ask(fmt.Sprintf("document.create.c.%d", i), "{}")
		if r.code != 201 && r.code != 503 {
			t.Fatalf("write %d: %s", i, r)
		}
	}
	if err := first.Stop(); err != nil && !strings.Contains(err.Error(), "taken over") {
		t.Errorf("the first one ended with %v", err)
	}
	w.processor = second
	w.want(201, "document.create.c.last", "{}")
}
