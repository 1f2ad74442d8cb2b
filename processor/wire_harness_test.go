package processor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
)

func TestMain(m *testing.M) {
	// NATS has one clock for all its stores; a store in a synctest bubble must not start
	// it.
	ats.Register()
	debug.SetGCPercent(400) // each test's small heap would be collected all the time
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// patience is how long a test waits for an expected event.
const patience = 30 * time.Second

// wire is a processor in this process behind an embedded server, and a client that knows
// only the contract.
type wire struct {
	t       testing.TB
	dir     string
	options Options
	logs    *logBuffer

	unchecked bool // the server starts without checking its files

	shutdown     func() // of the NATS server
	stage        func(bytes int) (batch string)
	checked      bool                                     // see eventlog.Connections
	connect      func(...nats.Option) (*nats.Conn, error) // as a service
	log, service *nats.Conn
	client       *nats.Conn // without credentials
	processor    *Processor
}

// newWire starts a processor over an empty store; change may change its
// options.
func newWire(t testing.TB, change ...func(*Options)) *wire {
	t.Helper()
	w := &wire{t: t, dir: t.TempDir(), logs: &logBuffer{}}
	w.options = Options{
		Dir:        filepath.Join(w.dir, "projection"),
		Durability: OS,
		Projection: projections.Options{CacheBytes: 1 << 20, MemTableBytes: 1 << 20},
		Logger:     slog.New(observe.LimitLog(slog.NewTextHandler(w.logs, nil))),
		Version:    "1.2.3",
	}
	for _, c := range change {
		c(&w.options)
	}
	w.startServer()
	w.run()
	return w
}

// connections returns the processor's connections.
func (w *wire) connections() eventlog.Connections {
	return eventlog.Connections{Log: w.log, Service: w.service, Stage: w.stage, Checked: w.checked}
}

func (w *wire) run() {
	w.t.Helper()
	w.t.Cleanup(func() {
		w.client.Close()
		w.service.Close()
		w.log.Close()
		w.shutdown()
	})
	w.start()
	w.t.Cleanup(w.stop)
}

func (w *wire) startServer() {
	w.t.Helper()
	s, err := embedded.Start(embedded.Options{StoreDir: w.dir, Listen: "127.0.0.1:0", Databases: []schema.DatabaseName{"main"},
		SyncAlways: w.options.Durability == Fsync, Unchecked: w.unchecked})
	w.check(err)
	w.shutdown, w.connect, w.stage = s.Shutdown, s.ConnectService, s.Stage("main")
	w.log, err = s.ConnectLog()
	w.check(err)
	w.service, err = s.ConnectService()
	w.check(err)
	w.client, err = nats.Connect(s.URL(), nats.Timeout(patience))
	w.check(err)
}

// inBubble runs test against a processor in a synctest bubble: time stands still while
// anything runs and jumps to the next timer when nothing does. So a test may wait for
// minutes and still know the exact second. Sockets would keep time from passing, so the
// server has none, and therefore no accounts.
func inBubble(t *testing.T, test func(*wire), change ...func(*Options)) {
	t.Helper()
	forgetTimers()
	defer forgetTimers()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{t: t, dir: t.TempDir(), logs: &logBuffer{}}
		w.options = Options{
			Dir:        "projection",
			Durability: OS,
			Projection: projections.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20, MemTableBytes: 1 << 20},
			Logger:     slog.New(observe.LimitLog(slog.NewTextHandler(w.logs, nil))),
			Version:    "1.2.3",
		}
		for _, c := range change {
			c(&w.options)
		}
		w.startInside(4 << 20)
		w.run()
		test(w)
	})
}

// startInside starts a server without sockets, with a max_payload of payload bytes, and
// connects to it.
func (w *wire) startInside(payload int32) {
	w.t.Helper()
	ns, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: w.dir,
		MaxPayload: payload, NoSigs: true, NoLog: true})
	w.check(err)
	ns.Start()
	w.shutdown = func() { ns.Shutdown(); ns.WaitForShutdown() }
	for _, nc := range []**nats.Conn{&w.log, &w.service, &w.client} {
		*nc, err = nats.Connect("", nats.InProcessServer(ns), nats.MaxReconnects(-1), nats.ReconnectWait(250*time.Millisecond))
		w.check(err)
	}
}

// restartInside restarts server and processor, with a max_payload of payload bytes.
func (w *wire) restartInside(payload int32, meanwhile ...func()) {
	w.t.Helper()
	w.stop()
	w.client.Close()
	w.service.Close()
	w.log.Close()
	w.shutdown()
	for _, do := range meanwhile {
		do()
	}
	w.startInside(payload)
	w.start()
}

// forgetTimers empties every sync.Pool, which takes two collections: nats.go
// keeps timers in one, and a timer may not change into or out of a bubble.
func forgetTimers() {
	runtime.GC()
	runtime.GC()
}

// sleepUntil sleeps until ms after the start of a second, in a bubble exactly.
func sleepUntil(second int64, ms int) {
	time.Sleep(time.Until(time.Unix(second, int64(ms)*1e6)))
}

// holdWriter blocks the writer until release is called, as if it were busy.
func (w *wire) holdWriter() (release func()) {
	held, let := make(chan struct{}), make(chan struct{})
	w.processor.writer.Proposals <- &writer.Proposal{
		Mutation: schema.NewMutation("document.get", nil), // no mutation; changes nothing
		Done:     func(machine.Outcome) { close(held); <-let },
	}
	<-held
	return sync.OnceFunc(func() { close(let) })
}

func (w *wire) start() {
	w.t.Helper()
	var err error
	w.processor, err = Start(w.ctx(), w.connections(), w.options)
	if err != nil {
		w.processor = nil
		w.t.Fatal(err)
	}
}

// stop stops the processor, if it runs.
func (w *wire) stop() {
	w.t.Helper()
	if w.processor == nil {
		return
	}
	err := w.processor.Stop()
	w.processor = nil
	if err != nil {
		w.t.Error(err)
	}
}

// restart stops the processor and starts another on the same data.
func (w *wire) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

func (w *wire) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.t.Cleanup(cancel)
	return ctx
}

// stream returns a stream as its owner sees it.
func (w *wire) stream(name string) jetstream.Stream {
	w.t.Helper()
	js, err := jetstream.New(w.log)
	w.check(err)
	s, err := js.Stream(w.ctx(), name)
	w.check(err)
	return s
}

// end returns the last sequence in the log.
func (w *wire) end() uint64 {
	w.t.Helper()
	return w.stream("LAPSE_main").CachedInfo().State.LastSeq
}

// events reads the whole log, without internal events.
func (w *wire) events() (events []*schema.Event) {
	w.t.Helper()
	for _, e := range w.everything() {
		if !e.Type.Internal() && e.Type != schema.NoEvent {
			events = append(events, e)
		}
	}
	return events
}

// everything reads every message of the log; a foreign one has the type NoEvent.
func (w *wire) everything() (events []*schema.Event) {
	w.t.Helper()
	log, err := eventlog.Open(w.ctx(), w.connections(), eventlog.Config{Database: "main"})
	w.check(err)
	first, last, err := log.Bounds(w.ctx())
	w.check(err)
	w.check(log.Read(w.ctx(), first, last, func(e *schema.Event) error {
		events = append(events, e)
		return nil
	}))
	return events
}

// wireReply is a parsed and checked reply to a request.
type wireReply struct {
	code    int
	seq     uint64
	error   string // name; "" if it is none
	message string
	body    []byte
	header  nats.Header
}

func (r wireReply) String() string {
	if r.error != "" {
		return fmt.Sprintf("%d %s: %s", r.code, r.error, r.message)
	}
	return fmt.Sprintf("%d %s", r.code, r.body)
}

// message returns a message; headers are names and values in turn.
func message(subject, body string, headers []string) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = []byte(body)
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	return m
}

// ask sends a request and reads its reply. tail is what follows lapse.main.api.
// in the subject; headers are names and values in turn.
func (w *wire) ask(tail, body string, headers ...string) wireReply {
	w.t.Helper()
	m := message("lapse.main.api."+tail, body, headers)
	answer, err := w.client.RequestMsg(m, patience)
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", m.Subject, err, w.logs)
	}
	r, err := readReply(answer)
	if err == nil {
		err = w.described(tail, m, answer)
	}
	if err != nil {
		w.t.Fatalf("%s: %v", m.Subject, err)
	}
	return r
}

// want sends a request whose reply must have a code.
func (w *wire) want(code int, tail, body string, headers ...string) wireReply {
	w.t.Helper()
	r := w.ask(tail, body, headers...)
	if r.code != code {
		w.t.Fatalf("%s %.200s: %.500s, want %d", tail, body, r, code)
	}
	return r
}

// refused sends a request that must fail and change nothing: the log, which holds every
// change, must not grow.
func (w *wire) refused(code int, name, tail, body string, headers ...string) wireReply {
	w.t.Helper()
	before := w.end()
	r := w.ask(tail, body, headers...)
	if r.code != code || r.error != name {
		w.t.Fatalf("%s %.200s: %.500s, want %d %s", tail, body, r, code, name)
	}
	if after := w.end(); after != before {
		w.t.Fatalf("%s was refused and the log went from %d to %d", tail, before, after)
	}
	return r
}

// readReply parses a reply and checks the rules that the contract has for all replies.
func readReply(m *nats.Msg) (r wireReply, err error) {
	fail := func(format string, args ...any) (wireReply, error) {
		return r, fmt.Errorf("the reply %v %.500q %s", m.Header, m.Data, fmt.Sprintf(format, args...))
	}
	if r.code, err = strconv.Atoi(m.Header.Get("Lapse-Status")); err != nil {
		return fail("has no Lapse-Status")
	}
	if r.seq, err = strconv.ParseUint(m.Header.Get("Lapse-Seq"), 10, 64); err != nil {
		return fail("has no Lapse-Seq")
	}
	r.body, r.header = m.Data, m.Header
	if r.code < 400 {
		if m.Header.Get("Nats-Service-Error-Code") != "" || m.Header.Get("Nats-Service-Error") != "" {
			return fail("is no error and has headers of one")
		}
		if (r.code == 204) != (len(r.body) == 0) || r.code != 204 && !json.Valid(r.body) {
			return fail("has a body that does not fit its code")
		}
		return r, nil
	}
	var fault struct {
		Code    int    `json:"code"`
		Error   string `json:"error"`
		Message string `json:"message"`
	}
	decoder := json.NewDecoder(bytes.NewReader(r.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&fault); err != nil {
		return fail("is an error without its body: %v", err)
	}
	if fault.Code != r.code || fault.Error == "" || fault.Message == "" ||
		m.Header.Get("Nats-Service-Error-Code") != strconv.Itoa(r.code) || m.Header.Get("Nats-Service-Error") == "" {
		return fail("says two things")
	}
	r.error, r.message = fault.Error, fault.Message
	return r, nil
}

// publish publishes a mutation and returns its sequence in the stream.
func (w *wire) publish(tail, body string, headers ...string) uint64 {
	w.t.Helper()
	js, err := jetstream.New(w.client)
	w.check(err)
	ack, err := js.PublishMsg(w.ctx(), message("lapse.main.mutations."+tail, body, headers))
	w.check(err)
	return ack.Sequence
}

// judged waits until a published mutation is judged.
func (w *wire) judged(seq uint64) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("mutation %d judged", seq), func() bool {
		return w.processor.store.Cursor().Mutations >= seq
	})
}

// eventually polls until done returns true, and fails the test after patience.
func (w *wire) eventually(what string, done func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %s: %s\n%s", patience, what, w.logs)
		}
	}
}

// await waits until done returns true, for patience at most.
func await(done func() bool) {
	for deadline := time.Now().Add(patience); !done() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// intrude publishes a message into the log that the processor did not decide.
func (w *wire) intrude(tail, body string, headers ...string) uint64 {
	w.t.Helper()
	prefix := strings.TrimSuffix(w.stream("LAPSE_main").CachedInfo().Config.Subjects[0], ">")
	js, err := jetstream.New(w.log)
	w.check(err)
	ack, err := js.PublishMsg(w.ctx(), message(prefix+tail, body, headers))
	w.check(err)
	return ack.Sequence
}

// fillLog makes the log refuse every append, like a full disk, until unfill is called.
func (w *wire) fillLog() (unfill func()) {
	w.t.Helper()
	js, err := jetstream.New(w.log)
	w.check(err)
	config := w.stream("LAPSE_main").CachedInfo().Config
	full := config
	full.MaxMsgs, full.Discard = int64(w.end()), jetstream.DiscardNew
	_, err = js.UpdateStream(w.ctx(), full)
	w.check(err)
	return func() {
		w.t.Helper()
		_, err := js.UpdateStream(w.ctx(), config)
		w.check(err)
	}
}

// content formats all documents and collections of the projection.
func (w *wire) content() string {
	w.t.Helper()
	var b strings.Builder
	store := w.processor.store
	for _, c := range store.Collections() {
		fmt.Fprintf(&b, "%s %d\n", c.AppendReply(nil), c.Incarnation)
		for _, order := range []projections.Order{projections.ByDeadline, projections.ByTimestamp} {
			_, _, err := store.Scan(projections.Queue{Incarnation: c.Incarnation, Order: order}, projections.Entry{}, math.MaxInt64, func(e projections.Entry) bool {
				r, ok, err := store.Document(c, e.ID)
				fmt.Fprintf(&b, "%d %d %s %v %+v %s %v %v\n", order, e.Second, e.ID, e.Warned, r.Meta, r.Body, ok, err)
				return true
			})
			w.check(err)
		}
		counts, err := store.Count(c, 0)
		w.check(err)
		fmt.Fprintf(&b, "%+v\n", counts)
	}
	return b.String()
}

// logBuffer collects log lines.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// idToken escapes an id for a subject, independently of lapse's code: it escapes what a
// URL requires, and then what a subject does.
func idToken(id string) string {
	return strings.NewReplacer("+", "%20", ".", "%2E", "*", "%2A").Replace(url.QueryEscape(id))
}

// removeProjection removes the projection while no processor runs.
func (w *wire) removeProjection() {
	w.t.Helper()
	w.check(os.RemoveAll(w.options.Dir))
}

func (l *logBuffer) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

// etag returns the _etag in the reply to a get.
func (w *wire) etag(tail string) string {
	w.t.Helper()
	var document struct {
		Etag string `json:"_etag"`
	}
	w.check(json.Unmarshal(w.want(200, tail, "").body, &document))
	return document.Etag
}
