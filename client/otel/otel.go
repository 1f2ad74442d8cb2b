// Package otel makes OpenTelemetry spans of the calls of a client of lapse, and of the handling
// of events:
//
//	c, err := client.Connect(url, client.WithTracer(otel.New(nil)))
//
// The trace context of a call stands on the events that it makes. The span of a handler, or of a
// loop body (see client.Event.Context), links to it. That of an expiry or warning links to the
// write that began the time to live, which may be weeks ago: as a child it would belong to a trace
// that is long sampled and stored.
package otel

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/lapsedb/lapse/client"
)

// tracer makes the spans. writes has the trace contexts of events that others are about,
// read from the log: an expiry that is tried again, or comes after its warning, costs no
// second request. It is emptied when it is full. mu guards it, since handlers run at the
// same time.
type tracer struct {
	provider func() trace.TracerProvider
	mu       sync.Mutex
	writes   map[write]trace.SpanContext
}

// write is an event of the log that another event is about.
type write struct {
	client *client.Client
	seq    uint64
}

// maxWrites limits the trace contexts kept for tries of the same event, and its warning.
const maxWrites = 1000

// New returns a Tracer for client.WithTracer, by a provider or, if it is nil, the global one. It
// reads the write of each expiry and warning from the log, by one request.
func New(provider trace.TracerProvider) client.Tracer {
	t := &tracer{provider: otel.GetTracerProvider, writes: make(map[write]trace.SpanContext)}
	if provider != nil {
		t.provider = func() trace.TracerProvider { return provider }
	}
	return t
}

// Call implements client.Tracer.
func (t *tracer) Call(ctx context.Context, c client.Call) context.Context {
	name, kind := c.Operation, trace.SpanKindClient
	attributes := []attribute.KeyValue{dbSystem.String("lapse"), dbNamespace.String(c.Client.Database()), dbOperation.String(c.Operation)}
	if c.Collection != "" {
		name += " " + c.Collection
		attributes = append(attributes, dbCollection.String(c.Collection))
	}
	if c.Submit {
		destination := "lapse." + c.Client.Database() + ".mutations"
		name, kind = "send "+destination, trace.SpanKindProducer
		attributes = append(attributes, message("send", destination)...)
	}
	ctx, _ = t.provider().Tracer(scope).Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	for name, value := range carrier {
		c.Header.Set(name, value)
	}
	return ctx
}

// message returns the attributes of an operation on messages.
func message(operation, destination string) []attribute.KeyValue {
	return []attribute.KeyValue{messagingSystem.String("nats"), messagingOperation.String(operation),
		messagingOperationType.String(operation), messagingDestination.String(destination)}
}

// Handle implements client.Tracer.
func (t *tracer) Handle(ctx context.Context, c *client.Client, e *client.Event) context.Context {
	destination := fmt.Sprintf("lapse.%s.events.%s.%s", c.Database(), e.Collection, e.Type)
	attributes := append(message("process", destination), messagingID.String(strconv.FormatUint(e.Seq, 10)))
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...)}
	if write := t.writeOf(ctx, c, e); write.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: write}))
	}
	ctx, _ = t.provider().Tracer(scope).Start(ctx, "process "+destination, opts...)
	return ctx
}

// writeOf returns the span of the write that made an event, or the version that an expiry or
// warning is about.
func (t *tracer) writeOf(ctx context.Context, c *client.Client, e *client.Event) trace.SpanContext {
	if e.Rule == client.NoRule {
		return spanOf(e)
	}
	seq, _ := strconv.ParseUint(e.Previous, 10, 64)
	key := write{c, seq}
	t.mu.Lock()
	span, ok := t.writes[key]
	t.mu.Unlock()
	if ok {
		return span
	}
	made, err := c.NextEvent(ctx, e.Collection, seq)
	if err != nil {
		return span // a span without a link, rather than none
	}
	if made != nil && made.Seq == seq { // or retention has removed it
		span = spanOf(made)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.writes) >= maxWrites {
		clear(t.writes)
	}
	t.writes[key] = span
	return span
}

// spanOf returns the trace context that stands on an event; it is not valid if there is
// none.
func spanOf(e *client.Event) trace.SpanContext {
	carrier := propagation.MapCarrier{}
	e.Schema().Trace.Headers(carrier.Set)
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// End implements client.Tracer. The status of a span has the name of a coded error and not
// its message, which may name a document.
func (t *tracer) End(ctx context.Context, err error) {
	span := trace.SpanFromContext(ctx)
	defer span.End()
	if err == nil {
		return
	}
	kind, text := fmt.Sprintf("%T", err), err.Error()
	if refusal, ok := errors.AsType[*client.Error](err); ok {
		kind, text = refusal.Name, refusal.Name // the message may name a document
		span.SetAttributes(dbStatus.String(strconv.Itoa(refusal.Code)))
	}
	span.SetAttributes(errorType.String(kind))
	span.SetStatus(codes.Error, text)
}
