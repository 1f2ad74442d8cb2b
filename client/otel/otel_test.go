package otel_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/client/otel"
	"github.com/lapsedb/lapse/host"
	"github.com/lapsedb/lapse/schema"
)

var update = flag.Bool("update", false, "write the picture of the manual")

var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// numbered counts the ids of traces and spans, so that the picture is always the same.
type numbered struct{ traces, spans atomic.Uint64 }

func (n *numbered) NewIDs(ctx context.Context) (id trace.TraceID, _ trace.SpanID) {
	binary.BigEndian.PutUint64(id[8:], n.traces.Add(1))
	return id, n.NewSpanID(ctx, id)
}

func (n *numbered) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	binary.BigEndian.PutUint64(id[:], n.spans.Add(1))
	return id
}

// world is a lapse whose clock the test moves, a client with a Tracer, and what it traced.
type world struct {
	*testing.T
	*client.Client
	trace.Tracer
	spans *tracetest.InMemoryExporter
	hooks client.Tracer
	coll  *client.Collection
}

func newWorld(t *testing.T) *world {
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan host.Ready, 1), make(chan error, 1)
	go func() {
		ended <- host.Run(ctx, host.Options{Listen: "127.0.0.1:0", Test: &host.Test{At: start}, Events: func(e host.Event) {
			if e, ok := e.(host.Ready); ok {
				ready <- e
			}
		}})
	}()
	w := &world{T: t, spans: tracetest.NewInMemoryExporter()}
	provider := sdk.NewTracerProvider(sdk.WithSyncer(w.spans), sdk.WithIDGenerator(&numbered{}))
	w.Tracer, w.hooks = provider.Tracer("shop"), otel.New(provider)
	var r host.Ready
	select {
	case r = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	var err error
	if w.Client, err = client.Connect(r.URL, client.WithTracer(w.hooks), client.WithTimeout(time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Close()
		stop()
		w.check(<-ended)
	})
	w.coll, err = w.CreateCollection(t.Context(), "sessions", client.DefaultTTL(30*24*time.Hour), client.WarnBefore(24*time.Hour))
	w.check(err)
	w.spans.Reset()
	return w
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// upsert stores a document in a span of the program.
func (w *world) upsert(id string) {
	ctx, span := w.Start(w.Context(), "POST /login")
	defer span.End()
	_, err := client.Upsert(ctx, w.coll, id, map[string]string{"user": "ann"})
	w.check(err)
}

func (w *world) advance(by time.Duration) {
	_, err := w.TestClock().Advance(w.Context(), by)
	w.check(err)
}

// find returns the ended spans of a name.
func (w *world) find(name string, n int) tracetest.SpanStubs {
	w.Helper()
	found := slices.DeleteFunc(w.spans.GetSpans(), func(s tracetest.SpanStub) bool { return s.Name != name })
	if len(found) != n {
		w.Fatalf("%d spans %q, want %d, among %v", len(found), name, n, names(w.spans.GetSpans()))
	}
	return found
}

func names(spans tracetest.SpanStubs) (all []string) {
	for _, s := range spans {
		all = append(all, s.Name)
	}
	return all
}

func attributes(s tracetest.SpanStub) (all string) {
	for _, a := range s.Attributes {
		all += fmt.Sprintf("%s=%s ", a.Key, a.Value.String())
	}
	return strings.TrimSpace(all)
}

const expired = "process lapse.main.events.sessions.DocumentExpired"

// TestFromRequestToExpiry: a request stores a session, and thirty days later the span of the
// handler of its expiry links to that request. It is the picture of the manual.
func TestFromRequestToExpiry(t *testing.T) {
	w := newWorld(t)
	w.upsert("a")
	w.advance(30 * 24 * time.Hour)
	for x, err := range client.Expirations[any](t.Context(), w.Client, client.FromStart()) {
		w.check(err)
		_, span := w.Start(x.Context(), "mail goodbye")
		span.End()
		break
	}
	login, call := w.find("POST /login", 1)[0], w.find("document.upsert sessions", 1)[0]
	handled, mail := w.find(expired, 1)[0], w.find("mail goodbye", 1)[0]
	if call.Parent.SpanID() != login.SpanContext.SpanID() || call.SpanKind != trace.SpanKindClient {
		t.Errorf("the call is a %s of %s", call.SpanKind, call.Parent.SpanID())
	}
	if got, want := attributes(call), "db.system.name=lapse db.namespace=main db.operation.name=document.upsert db.collection.name=sessions"; got != want {
		t.Errorf("the call has %s, want %s", got, want)
	}
	if handled.Parent.IsValid() || handled.SpanContext.TraceID() == call.SpanContext.TraceID() || handled.SpanKind != trace.SpanKindConsumer {
		t.Errorf("the handler is a %s of %s", handled.SpanKind, handled.Parent.SpanID())
	}
	if len(handled.Links) != 1 || handled.Links[0].SpanContext.SpanID() != call.SpanContext.SpanID() || handled.Links[0].SpanContext.TraceID() != call.SpanContext.TraceID() {
		t.Errorf("the handler links to %v, want %v", handled.Links, call.SpanContext)
	}
	if got, want := attributes(handled), "messaging.system=nats messaging.operation.name=process messaging.operation.type=process messaging.destination.name=lapse.main.events.sessions.DocumentExpired messaging.message.id="; !strings.HasPrefix(got, want) {
		t.Errorf("the handler has %s, want %s", got, want)
	}
	if mail.Parent.SpanID() != handled.SpanContext.SpanID() {
		t.Errorf("what the handler does is a child of %s", mail.Parent.SpanID())
	}
	picture := draw(tracetest.SpanStubs{login, call, handled, mail})
	const file = "../../docs/traces.svg"
	if *update {
		w.check(os.WriteFile(file, picture, 0o666))
	}
	if kept, err := os.ReadFile(file); string(kept) != string(picture) {
		t.Errorf("%s is another picture (%v): run make docs", file, err)
	}
}

// TestHandle: each try of a handler has a span that links to the write of the version that
// expired. The write is read once, also for its warning.
func TestHandle(t *testing.T) {
	w := newWorld(t)
	w.upsert("a")
	w.upsert("a")
	w.advance(30 * 24 * time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	tries := 0
	var last *client.Event
	err := w.Handle(ctx, func(ctx context.Context, e *client.Event) error {
		last = e
		if _, span := w.Start(ctx, "work"); e.Type == client.DocumentExpired {
			span.End()
			if tries++; tries == 1 {
				return errors.New("not yet")
			} else if tries == 2 {
				panic("nor now")
			}
			stop()
		}
		return nil
	}, client.FromStart(), client.OfType(client.DocumentExpiring, client.DocumentExpired))
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	write := w.find("document.upsert sessions", 2)[1].SpanContext
	all := append(w.find("process lapse.main.events.sessions.DocumentExpiring", 1), w.find(expired, 3)...)
	for i, s := range all {
		if len(s.Links) != 1 || s.Links[0].SpanContext.SpanID() != write.SpanID() {
			t.Errorf("span %d links to %v, want %v", i, s.Links, write)
		}
		if failed := i == 1 || i == 2; failed != (s.Status.Code == codes.Error) || failed != strings.Contains(attributes(s), "error.type=*errors.errorString") && !(i == 2) {
			t.Errorf("span %d has %v, %s", i, s.Status, attributes(s))
		}
	}
	if work := w.find("work", 3)[0]; work.Parent.SpanID() != all[1].SpanContext.SpanID() {
		t.Errorf("what the handler does is a child of %s", work.Parent.SpanID())
	}
	for _, c := range []struct {
		hooks client.Tracer
		reads uint64
	}{{w.hooks, 0}, {otel.New(nil), 1}} {
		before := w.Conn().Stats().OutMsgs
		for range 3 {
			c.hooks.End(c.hooks.Handle(t.Context(), w.Client, last), nil)
		}
		if reads := w.Conn().Stats().OutMsgs - before; reads != c.reads {
			t.Errorf("the log was read %d times, want %d", reads, c.reads)
		}
	}
}

// TestOtherEvents: the handler of another event links to the request or message that made it;
// without one, or once the write is no more in the log, there is no link.
func TestOtherEvents(t *testing.T) {
	w := newWorld(t)
	ctx, span := w.Start(t.Context(), "job")
	seq, err := w.Submit(ctx, "document.upsert", "sessions", "a", map[string]int{"n": 1})
	w.check(err)
	span.End()
	plain, err := client.Connect(w.Conn().ConnectedUrl())
	w.check(err)
	defer plain.Close()
	for e, err := range w.Changes(t.Context(), client.FromStart(), client.OfType(client.DocumentCreated)) {
		w.check(err)
		if e.Cause != seq || e.TraceParent == "" || e.Context() == context.Background() {
			t.Errorf("event %d has cause %d and trace context %q", e.Seq, e.Cause, e.TraceParent)
		}
		break
	}
	_, err = plain.Do(t.Context(), "document.touch", "sessions", "a", nil)
	w.check(err)
	for _, err := range w.Changes(t.Context(), client.FromStart(), client.OfType(client.DocumentTouched)) {
		w.check(err)
		break
	}
	send := w.find("send lapse.main.mutations", 1)[0]
	if send.SpanKind != trace.SpanKindProducer || !strings.Contains(attributes(send), "db.operation.name=document.upsert") || !strings.HasSuffix(attributes(send), "messaging.destination.name=lapse.main.mutations") {
		t.Errorf("Submit has a %s: %s", send.SpanKind, attributes(send))
	}
	if links := w.find("process lapse.main.events.sessions.DocumentCreated", 1)[0].Links; len(links) != 1 || links[0].SpanContext.SpanID() != send.SpanContext.SpanID() {
		t.Errorf("links to %v, want %v", links, send.SpanContext)
	}
	gone := client.EventOf(&schema.Event{Seq: 99, Type: client.DocumentExpired, Collection: "sessions", ID: "a", Previous: 1, Deadline: schema.Deadline{At: 1, TTL: 1, Rule: client.RuleCollection}})
	w.hooks.End(w.hooks.Handle(t.Context(), w.Client, gone), nil)
	for _, name := range []string{"process lapse.main.events.sessions.DocumentTouched", expired} {
		if links := w.find(name, 1)[0].Links; len(links) != 0 {
			t.Errorf("%s links to %v", name, links)
		}
	}
}

// TestRefused: the span of a call that fails says why.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	if _, err := client.Get[any](t.Context(), w.coll, "none"); !errors.Is(err, client.ErrDocumentNotFound) {
		t.Fatal(err)
	}
	s := w.find("document.get sessions", 1)[0]
	if want := attribute.String("error.type", "document_not_found"); s.Status != (sdk.Status{Code: codes.Error, Description: "document_not_found"}) || !slices.Contains(s.Attributes, want) || !slices.Contains(s.Attributes, attribute.String("db.response.status_code", "404")) {
		t.Errorf("%v with %s", s.Status, attributes(s))
	}
}

// draw draws traces below each other, their spans as bars, and an arrow from a span to the one
// that it links to.
func draw(spans tracetest.SpanStubs) []byte {
	const left, row = 24, 34
	var b strings.Builder
	at := map[trace.SpanID][2]int{} // where a span begins
	y := 10
	var last trace.TraceID
	for _, s := range spans {
		if id := s.SpanContext.TraceID(); id != last {
			y, last = y+30, id
			fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" class=\"trace\">trace %s</text>\n", left, y, id)
			y += 10
		}
		x := left
		if parent, ok := at[s.Parent.SpanID()]; ok {
			x = parent[0] + 28
		}
		at[s.SpanContext.SpanID()] = [2]int{x, y}
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"26\" rx=\"4\" class=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n", x, y, 520-x, s.SpanKind, x+10, y+18, s.Name)
		for _, link := range s.Links {
			to := at[link.SpanContext.SpanID()]
			fmt.Fprintf(&b, "<path d=\"M520 %d h40 V%d h-34\" marker-end=\"url(#end)\"/><text x=\"570\" y=\"%d\">link, 30 days back</text>\n", y+13, to[1]+13, (y+to[1])/2+18)
		}
		y += row
	}
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="720" height="%d" font-family="sans-serif" font-size="14">
<style>rect{fill:#dbe7f6;stroke:#4a76ad}.client{fill:#e3f1df;stroke:#4f8a41}.consumer{fill:#fbeacb;stroke:#b0803a}path{fill:none;stroke:#777;stroke-width:2;stroke-dasharray:5 3}.trace{fill:#777;font-size:12px}</style>
<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto"><polygon points="0,0 8,4 0,8" fill="#777"/></marker></defs>
<rect width="720" height="%d" style="fill:#fff;stroke:none"/>
%s</svg>
`, y+10, y+10, b.String())
}
