package client

import (
	"context"

	"github.com/nats-io/nats.go"
)

// Tracer observes what a Client does: module client/otel makes spans of it. It must be safe
// for concurrent use. A Client without a Tracer makes no call and no allocation for it.
type Tracer interface {
	// Call begins a request or a Submit. It returns the context with which that goes on.
	Call(ctx context.Context, call Call) context.Context
	// Handle begins the handling of an event: the body of a loop over Changes, Expirations or
	// Warnings, or a try of a Handler. The handler gets the context that it returns.
	Handle(ctx context.Context, c *Client, e *Event) context.Context
	// End ends what began with the context that ctx is, or is derived from. err is why it failed,
	// nil for the body of a loop.
	End(ctx context.Context, err error)
}

// Call is a request or a Submit of a Client.
type Call struct {
	Client                 *Client
	Operation              string // as in Do
	Collection, DocumentID string // "" if it has none
	Submit                 bool
	Header                 nats.Header // for the Tracer to add to
}

// WithTracer sets the Tracer of the client's calls and feeds.
func WithTracer(t Tracer) Option { return func(o *options) { o.tracer = t } }

// Context returns the context of the loop body that handles an event of Changes, Expirations
// or Warnings: that of the loop, with the span of a Tracer.
func (e *Event) Context() context.Context {
	if e.ctx == nil {
		return context.Background()
	}
	return e.ctx
}

// handled passes an event to the body of a loop.
func (c *Client) handled(ctx context.Context, e *Event, err error, yield func(*Event, error) bool) bool {
	if e != nil {
		e.ctx = ctx
		if c.tracer != nil {
			e.ctx = c.tracer.Handle(ctx, c, e)
			defer c.tracer.End(e.ctx, nil)
		}
	}
	return yield(e, err)
}

// traced returns a handler that calls the Tracer.
func (c *Client) traced(handler Handler) Handler {
	if c.tracer == nil {
		return handler
	}
	return func(ctx context.Context, e *Event) (err error) {
		ctx = c.tracer.Handle(ctx, c, e)
		defer func() { c.tracer.End(ctx, err) }()
		return guarded(ctx, handler, e)
	}
}
