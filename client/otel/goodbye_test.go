package otel_test

import (
	"context"
	"errors"
	"testing"
	"time"

	api "go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/lapsedb/lapse/client"
	"github.com/lapsedb/lapse/client/otel"
)

// goodbye is the program of the manual.
func goodbye(ctx context.Context, url string, mail func(context.Context, string) error) error {
	c, err := client.Connect(url, client.WithTracer(otel.New(nil)))
	if err != nil {
		return err
	}
	defer c.Close()
	for expired, err := range client.Expirations[any](ctx, c, client.Durable("goodbye"), client.FromStart()) {
		if err == nil {
			err = mail(expired.Context(), expired.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestProgramOfManual: with the global provider, what a program does about an expiry is in a span
// that links to the write.
func TestProgramOfManual(t *testing.T) {
	w := newWorld(t)
	api.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(w.spans)))
	w.upsert("a")
	w.advance(30 * 24 * time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	var mailed trace.SpanContext
	if err := goodbye(ctx, w.Conn().ConnectedUrl(), func(ctx context.Context, id string) error {
		mailed = trace.SpanContextFromContext(ctx)
		stop()
		return nil
	}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	handled, call := w.find(expired, 1)[0], w.find("document.upsert sessions", 1)[0]
	if mailed.SpanID() != handled.SpanContext.SpanID() || len(handled.Links) != 1 || handled.Links[0].SpanContext.SpanID() != call.SpanContext.SpanID() {
		t.Errorf("the mail is in %v, the handler links to %v, want %v", mailed, handled.Links, call.SpanContext)
	}
}
