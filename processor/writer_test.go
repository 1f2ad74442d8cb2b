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

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

// load writes concurrently until stop is called, which checks that the log has every
// acknowledged write once, and no refused one.
type load struct {
	*wire
	ending chan struct{}
	wg     sync.WaitGroup

	mu     sync.Mutex
	told   map[string]bool // by n in the document: whether the write was acknowledged
	causes uint64          // sequence of the last mutation published
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
	l.wg.Go(func() { l.publish(writers) })
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
		id := random.IntN(50)
		tail := fmt.Sprintf("document.upsert.load.%d", id)
		body := fmt.Sprintf(`{"n":%q}`, n)
		switch random.IntN(8) {
		case 0:
			tail = "batch.load"
			body = fmt.Sprintf(`{"operations":[{"op":"upsert","id":"%d","body":{"n":"%s-a"}},{"op":"upsert","id":"%d","body":{"n":"%s-b"}}]}`, id, n, id+1, n)
		case 1:
			tail = "batch.load"
			body = fmt.Sprintf(`{"atomic":true,"operations":[{"op":"upsert","id":"%d","body":{"n":"%s-a"}},{"op":"upsert","id":"%d","body":{"n":"%s-b"}}]}`, id, n, id+1, n)
		}
		m, err := l.client.Request("lapse.main.api."+tail, []byte(body), patience)
		if err != nil {
			l.t.Errorf("write %s: %v", n, err)
			return
		}
		r, err := readReply(m)
		names := []string{n}
		if tail == "batch.load" {
			names = []string{n + "-a", n + "-b"}
		}
		for _, name := range names {
			switch {
			case err != nil:
				l.t.Errorf("write %s: %v", n, err)
			case r.code < 300:
				l.note(name, true)
			case r.code == 504 || r.code == 503 && strings.Contains(r.message, "some operations were done"):
				l.note(name, false) // may or may not be applied
			case r.code != 503 && r.code != 429:
				l.t.Errorf("write %s: %s", n, r)
			}
		}
	}
}

func (l *load) publish(writer int) {
	js, err := jetstream.New(l.client)
	if err != nil {
		l.t.Error(err)
		return
	}
	for i := 0; !l.ended(); i++ {
		n := fmt.Sprintf("%d-%d", writer, i)
		l.note(n, true)
		ack, err := js.PublishMsg(l.ctx(), &nats.Msg{Subject: fmt.Sprintf("lapse.main.mutations.document.upsert.load.%d", i%50), Data: fmt.Appendf(nil, `{"n":%q}`, n)})
		if err != nil {
			l.t.Errorf("mutation %s: %v", n, err)
			return
		}
		l.causes = ack.Sequence
	}
}

// stop ends the load and checks the log.
func (l *load) stop() {
	l.t.Helper()
	close(l.ending)
	l.wg.Wait()
	if l.t.Failed() {
		l.t.FailNow()
	}
	l.judged(l.causes)
	l.verify()
}

func (l *load) verify() {
	l.t.Helper()
	found := make(map[string]int)
	version := make(map[schema.DocumentID]schema.Version)
	cause := uint64(0)
	at := int64(0)
	for _, e := range l.events() {
		if e.Time < at {
			l.t.Fatalf("event %d: log time goes back", e.Seq)
		}
		at = e.Time
		if e.Cause != 0 {
			if e.Cause != cause+1 {
				l.t.Fatalf("event %d has the cause %d after %d", e.Seq, e.Cause, cause)
			}
			cause = e.Cause
		}
		if e.Collection != "load" || !e.Type.OnDocument() {
			continue
		}
		if e.Previous != version[e.ID] {
			l.t.Fatalf("event %d ends version %d of %s, which is at %d", e.Seq, e.Previous, e.ID, version[e.ID])
		}
		version[e.ID] = schema.Version(e.Seq)
		var document struct{ N string }
		l.check(json.Unmarshal(e.Body, &document))
		found[document.N]++
	}
	if cause != l.causes {
		l.t.Errorf("mutations were judged up to %d of %d", cause, l.causes)
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
			w.judged(l.causes)
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
				t.Errorf("folded anew it is\n%s, before\n%s", after, before)
			}
			w.want(200, "document.upsert.load.last", "{}")
		})
	}
}

// TestLostConnections: no write is lost or doubled if the log connection breaks again and
// again under load, with events in flight and acknowledgements lost.
func TestLostConnections(t *testing.T) {
	t.Parallel()
	for _, durability := range []Durability{OS, Fsync} {
		t.Run(string(durability), func(t *testing.T) {
			w := newWire(t, func(o *Options) { o.Durability = durability })
			l := w.load(8)
			for i := range 6 {
				time.Sleep(50 * time.Millisecond) // of load
				w.check(w.log.ForceReconnect())
				try := 0
				w.eventually("a write is acknowledged", func() bool {
					n := fmt.Sprintf("alive%d-%d", i, try)
					try++
					r := w.ask("document.create.load."+n, fmt.Sprintf(`{"n":%q}`, n))
					if r.code != 201 && r.code != 503 && r.code != 504 { // on a busy machine the log may be unreachable for longer than a reply waits
						t.Fatal(n, r)
					}
					if r.code != 503 {
						l.note(n, r.code == 201)
					}
					return r.code == 201
				})
			}
			l.stop()
			restarts := 0
			for _, e := range w.everything() {
				if e.Type == schema.WriterStarted {
					restarts++
				}
			}
			t.Logf("the fence was moved %d times", restarts)
			w.check(w.service.ForceReconnect())
			w.eventually("the service is back", func() bool {
				_, err := w.client.Request("lapse.main.api.status", nil, time.Second)
				return err == nil
			})
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
		created := map[schema.DocumentID]int{}
		for _, e := range w.events() {
			if e.Seq > seq {
				created[e.ID]++
			}
		}
		if fmt.Sprint(created) != "map[a:1 b:1 c:1 m:1]" {
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
	files := func(pattern string) (files []string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(w.options.Dir, pattern))
		w.check(err)
		if len(files) == 0 {
			t.Fatalf("there is no %s", pattern)
		}
		return files
	}
	truncate := func(pattern string, part float64) func() {
		return func() {
			for _, file := range files(pattern) {
				info, err := os.Stat(file)
				w.check(err)
				w.check(os.Truncate(file, int64(part*float64(info.Size()))))
			}
		}
	}
	remove := func(pattern string) func() {
		return func() {
			for _, file := range files(pattern) {
				w.check(os.Remove(file))
			}
		}
	}
	overwrite := func(pattern string) func() {
		return func() {
			for _, file := range files(pattern) {
				info, err := os.Stat(file)
				w.check(err)
				w.check(os.WriteFile(file, []byte(strings.Repeat("?", int(info.Size()))), 0o600))
			}
		}
	}
	for _, damage := range []struct {
		name string
		do   func()
		seen bool // the projection is unusable
	}{
		{"none", func() {}, false},
		{"removed", w.removeProjection, false},
		{"tables truncated", truncate("*.sst", 0.5), true},
		{"tables emptied", truncate("*.sst", 0), true},
		{"tables removed", remove("*.sst"), true},
		{"manifest truncated", truncate("MANIFEST-*", 0.5), false},
		{"manifest emptied", truncate("MANIFEST-*", 0), false},
		{"manifest overwritten", overwrite("MANIFEST-*"), true},
		{"manifest removed", remove("MANIFEST-*"), false},
		{"markers removed", remove("marker.*"), false},
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
			if told := strings.Contains(w.logs.String(), "folded anew"); damage.seen && !told {
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
		if _, err := Start(w.ctx(), w.connections(), w.options); err == nil || !strings.Contains(err.Error(), "of a log that is gone: restore the stream") || strings.Contains(err.Error(), "\n") {
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

	// The stream of mutations may be new, too: its sequences continue.
	w.start()
	first := w.publish("document.create.c.m1", `{}`)
	w.judged(first)
	w.stop()
	w.check(js.DeleteStream(w.ctx(), "LAPSE_main_MUTATIONS"))
	w.start()
	if second := w.publish("document.create.c.m2", `{}`); second != first+1 {
		t.Errorf("after mutation %d comes %d", first, second)
	} else {
		w.judged(second)
	}
	w.want(200, "document.get.c.m2", "")

	// A stream of that name that is not a log is left alone.
	w.stop()
	w.check(js.DeleteStream(w.ctx(), "LAPSE_main"))
	_, err = js.CreateStream(w.ctx(), jetstream.StreamConfig{Name: "LAPSE_main", Subjects: []string{"else.>"}})
	w.check(err)
	if p, err := Start(w.ctx(), w.connections(), w.options); err == nil {
		t.Error("it serves a stream that is no log")
		w.check(p.Stop())
	} else if !strings.Contains(err.Error(), "not a log of lapse") {
		t.Errorf("it says %v", err)
	}
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
