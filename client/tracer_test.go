package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/schema"
)

// notes is a Tracer that notes its calls. Each begins something with a number, which is in
// the context and in a header.
type notes struct {
	lines []string
	n     int
}

type begun struct{}

func (n *notes) begin(ctx context.Context, what string) context.Context {
	n.n++
	n.lines = append(n.lines, fmt.Sprintf("%d %s", n.n, what))
	return context.WithValue(ctx, begun{}, n.n)
}

func (n *notes) Call(ctx context.Context, c client.Call) context.Context {
	ctx = n.begin(ctx, fmt.Sprintf("%s %s %s %t of %s", c.Operation, c.Collection, c.DocumentID, c.Submit, c.Client.Database()))
	c.Header.Set("traceparent", fmt.Sprintf("00-%032x-%016x-01", n.n, n.n))
	return ctx
}

func (n *notes) Handle(ctx context.Context, c *client.Client, e *client.Event) context.Context {
	return n.begin(ctx, fmt.Sprintf("%s %s of %s", e.Type, e.ID, c.Database()))
}

func (n *notes) End(ctx context.Context, err error) {
	text := fmt.Sprint(err)
	if coded, ok := errors.AsType[*client.Error](err); ok {
		text = coded.Name
	}
	text, _, _ = strings.Cut(text, "\n") // of a panic
	n.lines = append(n.lines, fmt.Sprintf("%v ends: %s", ctx.Value(begun{}), text))
}

func (n *notes) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(n.lines, want) {
		t.Errorf("the Tracer was called for\n%s\nwant\n%s", strings.Join(n.lines, "\n"), strings.Join(want, "\n"))
	}
	n.lines, n.n = nil, 0
}

// TestTracer: a Tracer learns of each request and Submit, of each loop body and try of a handler,
// and how it ends, also by break or panic.
func TestTracer(t *testing.T) {
	s := newStandin(t).log().serve()
	n := new(notes)
	c := s.client(client.WithTracer(n))
	coll := s.collection(c)
	n.want(t, "1 collection.get orders  false of main", "1 ends: <nil>")

	s.answer("document.get.orders.a", 404, `{"code":404,"error":"document_not_found","message":"no"}`)
	_, err := client.Get[any](t.Context(), coll, "a")
	if parent := s.last().Header.Get("traceparent"); !errors.Is(err, client.ErrDocumentNotFound) || parent != fmt.Sprintf("00-%032x-%016x-01", 1, 1) {
		t.Errorf("%v, and the request has traceparent %q", err, parent)
	}
	n.want(t, "1 document.get orders a false of main", "1 ends: document_not_found")

	if _, err = c.Submit(t.Context(), "document.delete", "c", "a", nil); err != nil {
		t.Error(err)
	}
	n.want(t, "1 document.delete c a true of main", "1 ends: <nil>")

	s.created("c", "a")
	s.expired("c", "a", "{}")
	for e, err := range c.Changes(t.Context(), client.FromStart()) {
		check(t, err)
		if got := e.Context().Value(begun{}); got != int(e.Seq) {
			t.Errorf("the context of event %d has %v", e.Seq, got)
		}
		if e.Type == client.DocumentExpired {
			break
		}
	}
	n.want(t, "1 DocumentCreated a of main", "1 ends: <nil>", "2 DocumentExpired a of main", "2 ends: <nil>")

	tries := 0
	if err := c.Handle(t.Context(), func(ctx context.Context, e *client.Event) error {
		tries++
		if got := ctx.Value(begun{}); got != tries {
			t.Errorf("try %d has the context of %v", tries, got)
		}
		switch tries {
		case 1:
			return errors.New("not yet")
		case 2:
			panic("nor now")
		}
		return nil
	}, client.FromStart(), client.UntilNow(), client.OfType(client.DocumentExpired)); err != nil {
		t.Error(err)
	}
	n.want(t, "1 DocumentExpired a of main", "1 ends: not yet", "2 DocumentExpired a of main", "2 ends: panic: nor now", "3 DocumentExpired a of main", "3 ends: <nil>")
}

// TestNoTracer: without a Tracer a handler is called as it is, and a loop body has the context of
// its loop, without an allocation.
func TestNoTracer(t *testing.T) {
	c := newStandin(t).client()
	e := client.EventOf(&schema.Event{Seq: 1, Type: client.DocumentCreated, Collection: "c", ID: "a"})
	if e.Context() != context.Background() {
		t.Error("an event outside of a loop has a context")
	}
	ctx := t.Context()
	body := func(e *client.Event, _ error) bool { return e.Context() == ctx }
	if allocations := testing.AllocsPerRun(100, func() {
		if !client.Handled(c, ctx, e, body) {
			t.Error("the body has another context than its loop")
		}
	}); allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}

// TestTraceOf: the option passes on a legal trace context, whatever the case of its names, and
// nothing else.
func TestTraceOf(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, c := range []struct{ from, want nats.Header }{
		{nats.Header{"Traceparent": {parent}, "Tracestate": {"a=1"}, "If-Match": {"1"}}, nats.Header{"traceparent": {parent}, "tracestate": {"a=1"}}},
		{nats.Header{"traceparent": {parent, parent}, "tracestate": {"a=1"}}, nats.Header{}},
		{nats.Header{"traceparent": {"x"}}, nats.Header{}},
		{nil, nats.Header{}},
	} {
		got := nats.Header{}
		client.TraceOf(c.from).Apply(got)
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("of %v it sets %v, want %v", c.from, got, c.want)
		}
	}
}
