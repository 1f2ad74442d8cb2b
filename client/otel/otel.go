// Package otel makes OpenTelemetry spans of the calls of a client of lapse, and of the handling
// of events:
//
//	c, err := client.Connect(url, client.WithTracer(otel.New()))
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
	"net"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/lapsedb/lapse/client"
)

type tracer struct {
	provider trace.TracerProvider // nil: the global one
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

// Option is an option of New.
type Option func(*tracer)

// WithTracerProvider sets the provider; the default is the global one.
func WithTracerProvider(p trace.TracerProvider) Option { return func(t *tracer) { t.provider = p } }

// New returns a Tracer for client.WithTracer. Its first span for a handler of an expiry or
// warning reads the event of the write from the log: one request.
func New(opts ...Option) client.Tracer {
	t := &tracer{writes: make(map[write]trace.SpanContext)}
	for _, opt := range opts {
		opt(t)
	}
	return t
}

func (t *tracer) start(ctx context.Context, name string, opts ...trace.SpanStartOption) context.Context {
	provider := t.provider
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	ctx, _ = provider.Tracer(scope).Start(ctx, name, opts...)
	return ctx
}

// Call implements client.Tracer.
func (t *tracer) Call(ctx context.Context, c client.Call) context.Context {
	name, kind := c.Operation, trace.SpanKindClient
	attributes := []attribute.KeyValue{dbSystem.String("lapse"), dbNamespace.String(c.Client.Database()),
		dbOperation.String(c.Operation)}
	if host, port, err := net.SplitHostPort(c.Client.Conn().ConnectedAddr()); err == nil {
		number, _ := strconv.Atoi(port)
		attributes = append(attributes, serverAddress.String(host), serverPort.Int(number))
	}
	if c.Collection != "" {
		name += " " + c.Collection
		attributes = append(attributes, dbCollection.String(c.Collection))
	}
	if c.Submit {
		kind = trace.SpanKindProducer
		destination := "lapse." + c.Client.Database() + ".mutations"
		name = "send " + destination
		attributes = append(attributes, message("send", destination)...)
	}
	ctx = t.start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	for name, value := range carrier {
		c.Header.Set(name, value)
	}
	return ctx
}

func message(operation, destination string) []attribute.KeyValue {
	return []attribute.KeyValue{messagingSystem.String("nats"), messagingOperation.String(operation),
		messagingOperationType.String(operation), messagingDestination.String(destination)}
}

// Handle implements client.Tracer.
func (t *tracer) Handle(ctx context.Context, c *client.Client, e *client.Event) context.Context {
	destination := fmt.Sprintf("lapse.%s.events.%s.%s", c.Database(), e.Collection, e.Type)
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(append(message("process", destination), messagingID.String(strconv.FormatUint(e.Seq, 10)))...)}
	if write := t.writeOf(ctx, c, e); write.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: write}))
	}
	return t.start(ctx, "process "+destination, opts...)
}

// writeOf returns the span of the write that made an event, or the version that it is about.
func (t *tracer) writeOf(ctx context.Context, c *client.Client, e *client.Event) trace.SpanContext {
	if e.Rule == client.NoRule {
		return spanOf(ctx, e)
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
		span = spanOf(ctx, made)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.writes) >= maxWrites {
		clear(t.writes)
	}
	t.writes[key] = span
	return span
}

func spanOf(ctx context.Context, e *client.Event) trace.SpanContext {
	header := e.Schema().Trace
	carrier := propagation.MapCarrier{"traceparent": header.Parent, "tracestate": header.State}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), carrier))
}

// End implements client.Tracer.
func (t *tracer) End(ctx context.Context, err error) {
	span := trace.SpanFromContext(ctx)
	if err != nil {
		kind := fmt.Sprintf("%T", err)
		if refusal, ok := errors.AsType[*client.Error](err); ok {
			kind = refusal.Name
			span.SetAttributes(dbStatus.String(strconv.Itoa(refusal.Code)))
		}
		span.SetAttributes(errorType.String(kind))
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
