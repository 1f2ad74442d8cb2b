package processortest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
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

	"github.com/lapsedb/lapse/processor"
	"github.com/lapsedb/lapse/processor/embedded"
	"github.com/lapsedb/lapse/processor/eventlog"
	"github.com/lapsedb/lapse/processor/machine"
	"github.com/lapsedb/lapse/processor/monitor"
	"github.com/lapsedb/lapse/processor/observe"
	"github.com/lapsedb/lapse/processor/writer"
	"github.com/lapsedb/lapse/projections"
	"github.com/lapsedb/lapse/schema"
	"github.com/lapsedb/lapse/test/conform"
)

// Two ways to have a processor in a test. New has the embedded server of lapse serve, with
// its accounts, gate and sockets, in real time: for what a client sees and may do. Bubble
// has a bare NATS server without accounts, in a synctest bubble: for everything about time.
// Both clean up at the end of the test, and check each request and reply against
// schema/asyncapi.yaml.

// Main runs the tests of a package and checks that no goroutine is left.
func Main(m *testing.M) {
	// NATS has one clock for all its stores; a store in a synctest bubble must not start
	// it.
	ats.Register()
	debug.SetGCPercent(400) // each test's small heap would be collected all the time
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// Patience is how long a test waits for an expected event.
const Patience = 30 * time.Second

// Wire is a processor in this process behind an embedded server, and a client that knows
// only the contract. A test may change Options between Stop and Start. Its methods fail the
// test, and belong to the test's goroutine.
type Wire struct {
	T       testing.TB
	Dir     string
	Options processor.Options
	Logs    *LogBuffer

	Unchecked bool // the server starts without checking its files

	Shutdown     func() // of the NATS server
	stage        func(bytes int) (batch string)
	Checked      bool                                     // see eventlog.Connections
	Connect      func(...nats.Option) (*nats.Conn, error) // as a service
	Log, Service *nats.Conn
	Client       *nats.Conn // without credentials
	Processor    *processor.Processor
	Monitor      *monitor.Monitor // of Processor
}

// New starts a processor over an empty store, with its projection in memory, since tests that
// run at once wait for the disk; edit adjusts the options.
func New(t testing.TB, edit ...func(*processor.Options)) *Wire {
	t.Helper()
	w := newWire(t, edit)
	w.StartServer()
	w.Run()
	return w
}

func newWire(t testing.TB, edit []func(*processor.Options)) *Wire {
	w := &Wire{T: t, Dir: t.TempDir(), Logs: &LogBuffer{}}
	w.Options = processor.Options{
		Dir:        "projection",
		Durability: processor.OS,
		Projection: projections.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20, MemTableBytes: 1 << 20},
		Logger:     slog.New(observe.LimitLog(slog.NewTextHandler(w.Logs, nil))),
		Version:    "1.2.3",
		Node:       "node",
	}
	for _, c := range edit {
		c(&w.Options)
	}
	return w
}

// OnDisk has the projection in a directory of the test, whose files it may damage.
func OnDisk(t testing.TB) func(*processor.Options) {
	dir := filepath.Join(t.TempDir(), "projection")
	return func(o *processor.Options) { o.Dir, o.Projection.FS = dir, vfs.Default }
}

// Connections returns the processor's connections.
func (w *Wire) Connections() eventlog.Connections {
	return eventlog.Connections{Log: w.Log, Service: w.Service, Stage: w.stage, Checked: w.Checked}
}

// Run starts the processor, and stops processor and server at the end of the test.
func (w *Wire) Run() {
	w.T.Helper()
	w.T.Cleanup(w.StopServer)
	w.Start()
}

// StopServer stops the processor, if it runs, and its NATS server.
func (w *Wire) StopServer() {
	w.T.Helper()
	w.Stop()
	w.Client.Close()
	w.Service.Close()
	w.Log.Close()
	w.Shutdown()
}

// StartServer starts an embedded server over Dir and connects to it. SyncAlways follows the
// durability, as in serve.
func (w *Wire) StartServer() {
	w.T.Helper()
	s, err := embedded.Start(embedded.Options{StoreDir: w.Dir, Listen: "127.0.0.1:0", Databases: []schema.DatabaseName{"main"},
		SyncAlways: w.Options.Durability == processor.Fsync, Unchecked: w.Unchecked})
	w.Check(err)
	w.Shutdown, w.Connect, w.stage = s.Shutdown, s.ConnectService, s.Stage("main")
	w.Log, err = s.ConnectLog()
	w.Check(err)
	w.Service, err = s.ConnectService()
	w.Check(err)
	w.Client, err = nats.Connect(s.URL(), nats.Timeout(Patience))
	w.Check(err)
}

// Bubble runs test against a processor in a synctest bubble: time stands still while
// anything runs and jumps to the next timer when nothing does. So a test may wait for
// minutes and still know the exact second. Sockets would keep time from passing, so the
// server has none, and therefore no accounts.
func Bubble(t *testing.T, test func(*Wire), edit ...func(*processor.Options)) {
	t.Helper()
	ForgetTimers()
	defer ForgetTimers()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, edit)
		w.StartInside(4 << 20)
		w.Run()
		test(w)
	})
}

// StartInside starts a server without sockets, with a max_payload of payload bytes, and
// connects to it.
func (w *Wire) StartInside(payload int32) {
	w.T.Helper()
	ns, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: w.Dir,
		MaxPayload: payload, NoSigs: true, NoLog: true})
	w.Check(err)
	ns.Start()
	w.Shutdown = func() { ns.Shutdown(); ns.WaitForShutdown() }
	for _, nc := range []**nats.Conn{&w.Log, &w.Service, &w.Client} {
		*nc, err = nats.Connect("", nats.InProcessServer(ns), nats.MaxReconnects(-1), nats.ReconnectWait(250*time.Millisecond))
		w.Check(err)
	}
}

// RestartInside restarts server and processor, with a max_payload of payload bytes.
func (w *Wire) RestartInside(payload int32, meanwhile ...func()) {
	w.T.Helper()
	w.StopServer()
	for _, do := range meanwhile {
		do()
	}
	w.StartInside(payload)
	w.Start()
}

// ForgetTimers empties every sync.Pool, which takes two collections: nats.go keeps timers
// in one, and a timer may not change into or out of a bubble. Call it before a bubble and
// after it.
func ForgetTimers() {
	runtime.GC()
	runtime.GC()
}

// SleepUntil sleeps until ms after the start of a second, in a bubble exactly.
func SleepUntil(second int64, ms int) {
	time.Sleep(time.Until(time.Unix(second, int64(ms)*1e6)))
}

// HoldWriter blocks the writer until release is called, as if it were busy: Done of a
// proposal is called on the writer's goroutine. Nothing is decided, expired or acknowledged
// meanwhile.
func (w *Wire) HoldWriter() (release func()) {
	held, let := make(chan struct{}), make(chan struct{})
	w.Inside().Writer.Proposals <- &writer.Proposal{
		Mutation: schema.NewMutation("document.get", nil), // no mutation; changes nothing
		Done:     func(machine.Outcome) { close(held); <-let },
	}
	<-held
	return sync.OnceFunc(func() { close(let) })
}

// Start starts the processor over what is there.
func (w *Wire) Start() {
	w.T.Helper()
	w.Check(w.TryStart())
}

// TryStart starts the processor, or returns why it does not start.
func (w *Wire) TryStart() (err error) {
	w.T.Helper()
	o := w.Options
	if o.Monitor == nil {
		o.Monitor = monitor.NewMonitor("main")
	}
	w.Monitor = o.Monitor
	if w.Processor, err = processor.Start(w.Ctx(), w.Connections(), o); err != nil {
		w.Processor = nil
	}
	return err
}

// Stop stops the processor, if it runs.
func (w *Wire) Stop() {
	w.T.Helper()
	if w.Processor == nil {
		return
	}
	err := w.Processor.Stop()
	w.Processor = nil
	if err != nil {
		w.T.Error(err)
	}
}

// Restart stops the processor and starts another on the same data.
func (w *Wire) Restart() {
	w.T.Helper()
	w.Stop()
	w.Start()
}

// Check fails the test with an error.
func (w *Wire) Check(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// Ctx returns a context for one call, which ends after Patience and at the end of the test.
func (w *Wire) Ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	w.T.Cleanup(cancel)
	return ctx
}

// JS returns JetStream as the owner of the log.
func (w *Wire) JS() jetstream.JetStream {
	w.T.Helper()
	js, err := jetstream.New(w.Log)
	w.Check(err)
	return js
}

// Stream returns a stream as its owner sees it.
func (w *Wire) Stream(name string) jetstream.Stream {
	w.T.Helper()
	s, err := w.JS().Stream(w.Ctx(), name)
	w.Check(err)
	return s
}

// End returns the last sequence in the log.
func (w *Wire) End() uint64 {
	w.T.Helper()
	return w.Stream("LAPSE_main").CachedInfo().State.LastSeq
}

// OpenLog opens the log, beside the processor.
func (w *Wire) OpenLog() *eventlog.Log {
	w.T.Helper()
	log, err := eventlog.Open(w.Ctx(), w.Connections(), eventlog.Config{Database: "main"})
	w.Check(err)
	w.T.Cleanup(log.Close)
	return log
}

// Events reads the whole log, without internal events.
func (w *Wire) Events() (events []*schema.Event) {
	w.T.Helper()
	for _, e := range w.Everything() {
		if !e.Type.Internal() && e.Type != schema.NoEvent {
			events = append(events, e)
		}
	}
	return events
}

// Everything reads every message of the log; a foreign one has the type NoEvent.
func (w *Wire) Everything() (events []*schema.Event) {
	w.T.Helper()
	log := w.OpenLog()
	first, last, err := log.Bounds(w.Ctx())
	w.Check(err)
	w.Check(log.Read(w.Ctx(), first, last, func(e *schema.Event) error {
		events = append(events, e)
		return nil
	}))
	return events
}

// Count returns the number of events of a type in the log.
func (w *Wire) Count(t schema.EventType) (n int) {
	w.T.Helper()
	for _, e := range w.Everything() {
		if e.Type == t {
			n++
		}
	}
	return n
}

// Reply is a parsed and checked reply to a request.
type Reply struct {
	Code    int
	Seq     uint64
	Error   string // name; "" if it is none
	Message string
	Body    []byte
	Header  nats.Header
}

// String shows a reply in the messages of tests.
func (r Reply) String() string {
	if r.Error != "" {
		return fmt.Sprintf("%d %s: %s", r.Code, r.Error, r.Message)
	}
	return fmt.Sprintf("%d %s", r.Code, r.Body)
}

// Message returns a message; headers are names and values in turn.
func Message(subject, body string, headers []string) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = []byte(body)
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	return m
}

// Ask sends a request and reads its reply. tail is what follows lapse.main.api.
// in the subject; headers are names and values in turn.
func (w *Wire) Ask(tail, body string, headers ...string) Reply {
	w.T.Helper()
	m := Message("lapse.main.api."+tail, body, headers)
	answer, err := w.Client.RequestMsg(m, Patience)
	if err != nil {
		w.T.Fatalf("%s: %v\n%s", m.Subject, err, w.Logs)
	}
	r, err := ReadReply(answer)
	if err == nil {
		err = w.described(tail, m, answer)
	}
	if err != nil {
		w.T.Fatalf("%s: %v", m.Subject, err)
	}
	return r
}

// Want sends a request whose reply must have a code.
func (w *Wire) Want(code int, tail, body string, headers ...string) Reply {
	w.T.Helper()
	r := w.Ask(tail, body, headers...)
	if r.Code != code {
		w.T.Fatalf("%s %.200s: %.500s, want %d", tail, body, r, code)
	}
	return r
}

// Refused sends a request that must fail and change nothing: the log, which holds every
// change, must not grow.
func (w *Wire) Refused(code int, name, tail, body string, headers ...string) Reply {
	w.T.Helper()
	before := w.End()
	r := w.Ask(tail, body, headers...)
	if r.Code != code || r.Error != name {
		w.T.Fatalf("%s %.200s: %.500s, want %d %s", tail, body, r, code, name)
	}
	if after := w.End(); after != before {
		w.T.Fatalf("%s was refused and the log went from %d to %d", tail, before, after)
	}
	return r
}

// ReadReply parses a reply and checks the rules that the contract has for all replies.
func ReadReply(m *nats.Msg) (r Reply, err error) {
	fail := func(format string, args ...any) (Reply, error) {
		return r, fmt.Errorf("the reply %v %.500q %s", m.Header, m.Data, fmt.Sprintf(format, args...))
	}
	if r.Code, err = strconv.Atoi(m.Header.Get("Lapse-Status")); err != nil {
		return fail("has no Lapse-Status")
	}
	if r.Seq, err = strconv.ParseUint(m.Header.Get("Lapse-Seq"), 10, 64); err != nil {
		return fail("has no Lapse-Seq")
	}
	r.Body, r.Header = m.Data, m.Header
	if r.Code < 400 {
		if m.Header.Get("Nats-Service-Error-Code") != "" || m.Header.Get("Nats-Service-Error") != "" {
			return fail("is no error and has headers of one")
		}
		if (r.Code == 204) != (len(r.Body) == 0) || r.Code != 204 && !json.Valid(r.Body) {
			return fail("has a body that does not fit its code")
		}
		return r, nil
	}
	var fault struct {
		Code    int    `json:"code"`
		Error   string `json:"error"`
		Message string `json:"message"`
	}
	decoder := json.NewDecoder(bytes.NewReader(r.Body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&fault); err != nil {
		return fail("is an error without its body: %v", err)
	}
	if fault.Code != r.Code || fault.Error == "" || fault.Message == "" ||
		m.Header.Get("Nats-Service-Error-Code") != strconv.Itoa(r.Code) || m.Header.Get("Nats-Service-Error") == "" {
		return fail("says two things")
	}
	r.Error, r.Message = fault.Error, fault.Message
	return r, nil
}

// Publish publishes a mutation and returns its sequence in the stream.
func (w *Wire) Publish(tail, body string, headers ...string) uint64 {
	w.T.Helper()
	js, err := jetstream.New(w.Client)
	w.Check(err)
	ack, err := js.PublishMsg(w.Ctx(), Message("lapse.main.mutations."+tail, body, headers))
	w.Check(err)
	return ack.Sequence
}

// Judged waits until a published mutation is judged.
func (w *Wire) Judged(seq uint64) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("mutation %d judged", seq), func() bool {
		return w.Inside().Store.Cursor().Mutations >= seq
	})
}

// Eventually polls until done returns true, and fails the test after patience. The longer it
// has waited, the longer it waits between two polls.
func (w *Wire) Eventually(what string, done func() bool) {
	w.T.Helper()
	for began := time.Now(); !done(); time.Sleep(2*time.Millisecond + time.Since(began)/8) {
		if time.Since(began) > Patience {
			w.T.Fatalf("not within %s: %s\n%s", Patience, what, w.Logs)
		}
	}
}

// Await waits until done returns true, for patience at most.
func Await(done func() bool) {
	for deadline := time.Now().Add(Patience); !done() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// Intrude publishes a message into the log that the processor did not decide.
func (w *Wire) Intrude(tail, body string, headers ...string) uint64 {
	w.T.Helper()
	prefix := strings.TrimSuffix(w.Stream("LAPSE_main").CachedInfo().Config.Subjects[0], ">")
	ack, err := w.JS().PublishMsg(w.Ctx(), Message(prefix+tail, body, headers))
	w.Check(err)
	return ack.Sequence
}

// FillLog makes the log refuse every append, like a full disk, until unfill is called.
func (w *Wire) FillLog() (unfill func()) {
	w.T.Helper()
	js := w.JS()
	config := w.Stream("LAPSE_main").CachedInfo().Config
	full := config
	full.MaxMsgs, full.Discard = int64(w.End()), jetstream.DiscardNew
	_, err := js.UpdateStream(w.Ctx(), full)
	w.Check(err)
	return func() {
		w.T.Helper()
		_, err := js.UpdateStream(w.Ctx(), config)
		w.Check(err)
	}
}

// Content formats all documents and collections of the projection.
func (w *Wire) Content() string {
	w.T.Helper()
	var b strings.Builder
	store := w.Inside().Store
	for _, c := range store.Collections() {
		fmt.Fprintf(&b, "%s %d\n", c.AppendReply(nil), c.Incarnation)
		for _, order := range []projections.Order{projections.ByDeadline, projections.ByTimestamp} {
			_, _, err := store.Scan(projections.Queue{Incarnation: c.Incarnation, Order: order}, projections.Entry{}, math.MaxInt64, func(e projections.Entry) bool {
				r, ok, err := store.Document(c, e.ID)
				fmt.Fprintf(&b, "%d %d %s %v %+v %s %v %v\n", order, e.Second, e.ID, e.Warned, r.Meta, r.Body, ok, err)
				return true
			})
			w.Check(err)
		}
		counts, err := store.Count(c, 0)
		w.Check(err)
		fmt.Fprintf(&b, "%+v\n", counts)
	}
	return b.String()
}

// LogBuffer collects log lines.
type LogBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// RemoveProjection removes the projection while no processor runs.
func (w *Wire) RemoveProjection() {
	w.T.Helper()
	w.Check(w.Options.EnsureDefaults().Projection.FS.RemoveAll(w.Options.Dir))
}

// Refold starts without a projection, and checks that the content of the log is as before.
func (w *Wire) Refold() {
	w.T.Helper()
	before := w.Content()
	w.Stop()
	w.RemoveProjection()
	w.Start()
	if after := w.Content(); after != before {
		w.T.Errorf("folded again it is\n%.2000s, before\n%.2000s", after, before)
	}
}

// NoStart checks that a start fails with an error of one line that has all parts.
func (w *Wire) NoStart(parts ...string) {
	w.T.Helper()
	err := w.TryStart()
	if err == nil {
		w.T.Fatal("it starts")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
			w.T.Errorf("it says %v, want %s", err, part)
		}
	}
}

// Reset forgets the lines so far.
func (l *LogBuffer) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

// Etag returns the _etag in the reply to a get.
func (w *Wire) Etag(tail string) string {
	w.T.Helper()
	var document struct {
		Etag string `json:"_etag"`
	}
	w.Check(json.Unmarshal(w.Want(200, tail, "").Body, &document))
	return document.Etag
}

// TS returns the _ts of the document in a reply.
func (w *Wire) TS(r Reply) int64 {
	w.T.Helper()
	var document struct {
		TS int64 `json:"_ts"`
	}
	w.Check(json.Unmarshal(r.Body, &document))
	return document.TS
}

// Summary returns the types, and ids, of the events after a sequence.
func (w *Wire) Summary(after uint64) string {
	w.T.Helper()
	var words []string
	for _, e := range w.Events() {
		if e.Seq <= after {
			continue
		}
		word := e.Type.String()
		if e.Type.OnDocument() {
			word += "(" + string(e.ID) + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// WantSummary compares Summary, as in "DocumentCreated(a) DocumentExpired(a)".
func (w *Wire) WantSummary(after uint64, want string) {
	w.T.Helper()
	if got := w.Summary(after); got != want {
		w.T.Fatalf("the log says\n%s, want\n%s", got, want)
	}
}

// Retaining sets the retention and the interval of snapshots.
func Retaining(retain, every time.Duration) func(*processor.Options) {
	return func(o *processor.Options) { o.Retain, o.SnapshotEvery = retain, every }
}

// SnapshotList returns the snapshots of the log, newest first.
func (w *Wire) SnapshotList() []schema.Snapshot {
	w.T.Helper()
	list, err := w.Inside().Retention.Snapshots.List(w.Ctx())
	w.Check(err)
	return list
}

// describedBytes is the longest body that is checked against schema/asyncapi.yaml: longer ones
// take up to seconds, and are of the same kinds.
const describedBytes = 32 << 10

// described returns an error unless a reply conforms to schema/asyncapi.yaml and, if it
// reports success, the request does, too.
func (w *Wire) described(tail string, request, reply *nats.Msg) error {
	operation, _ := schema.SplitOperation(tail)
	if !slices.Contains(schema.OperationNames(nil), operation) {
		operation = "status" // has the same error schema
	}
	if len(reply.Data) <= describedBytes {
		if err := conform.Reply(operation, reply.Header, reply.Data); err != nil {
			return err
		}
	}
	if len(request.Data) > describedBytes {
		return nil
	}
	switch reply.Header.Get("Lapse-Status") {
	case "200", "201", "204":
	default:
		return nil
	}
	if operation == "batch" && bytes.Contains(reply.Data, []byte(`{"code":4`)) {
		return nil // the result of an invalid operation reports it
	}
	return conform.Request(operation, request.Header, request.Data)
}

// Raw returns a connection for messages that no client library writes.
func (w *Wire) Raw() net.Conn {
	w.T.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.Client.ConnectedUrl(), "nats://"))
	w.Check(err)
	w.T.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprint(conn, "CONNECT {\"verbose\":false,\"headers\":true}\r\n")
	w.Check(err)
	return conn
}

// Trim trims the log to begin at first, as retention does.
func (w *Wire) Trim(first uint64) {
	w.T.Helper()
	w.Check(w.Inside().Retention.Noter.Note(w.Ctx(), schema.LogTrimmed, fmt.Appendf(nil, `{"first":%d}`, first)))
	w.Check(w.Stream("LAPSE_main").Purge(w.Ctx(), jetstream.WithPurgeSequence(first)))
}

// ReplaceLog replaces the log by another one of events.
func (w *Wire) ReplaceLog(events []*schema.Event) {
	w.T.Helper()
	config, js := w.Stream("LAPSE_main").CachedInfo().Config, w.JS()
	w.Check(js.DeleteStream(w.Ctx(), "LAPSE_main"))
	_, err := js.CreateStream(w.Ctx(), config)
	w.Check(err)
	for _, e := range events {
		var headers []string
		e.Headers(func(name, value string) { headers = append(headers, name, value) })
		w.Intrude(e.EventTokens(), string(e.Body), headers...)
	}
}

// Idle checks that no request bytes are held once everything is answered.
func (w *Wire) Idle() {
	w.T.Helper()
	release := w.HoldWriter()
	defer release()
	if held := w.Inside().Service.Held.Load(); held != 0 {
		w.T.Errorf("%d bytes of requests are held", held)
	}
}
