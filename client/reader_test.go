package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lapsedb/lapse/client"
)

// TestReadersLeaveNothing: whatever reads the log, and however that ends, it leaves no
// consumer but the durable that the caller named. The stream allows a few consumers, so
// that those of earlier readers would be in the way.
func TestReadersLeaveNothing(t *testing.T) { both(t, readersLeaveNothing) }

func readersLeaveNothing(t *testing.T, with ...client.Option) {
	const limit, again = 3, 6
	s := newStandin(t).log()
	stream, err := s.js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: "LAPSE_main", Subjects: []string{"lapse.main.events.>"}, MaxConsumers: limit})
	check(t, err)
	s.created("orders", "a")
	s.expired("orders", "a", `{"id":"a"}`)
	s.deadline(client.DocumentExpiring, "orders", "b", `{"id":"b"}`)
	s.expired("orders", "b", `{"id":"b"}`)
	for _, event := range []string{"DocumentExpired", "DocumentExpiring"} {
		must(t)(s.nc.Request("lapse.main.events.broken."+event, []byte("no event"), patience))
	}
	nc := s.connect("app")
	c, err := client.New(nc, append(with, client.WithTimeout(patience))...)
	check(t, err)
	count := func() (readers int) {
		names := stream.ConsumerNames(t.Context())
		for name := range names.Name() {
			if !strings.HasPrefix(name, "named-") {
				readers++
			}
		}
		check(t, names.Err())
		return readers
	}
	named := 0 // durables so far: NATS may not delete one and create it again at once
	remove := func() {
		if err := stream.DeleteConsumer(t.Context(), fmt.Sprint("named-", named)); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			t.Fatal(err)
		}
		named++
	}
	loops := map[string]func(ctx context.Context, opts ...client.FeedOption) iter.Seq[error]{
		"changes": func(ctx context.Context, opts ...client.FeedOption) iter.Seq[error] {
			return failures(c.Changes(ctx, opts...))
		},
		"expirations": func(ctx context.Context, opts ...client.FeedOption) iter.Seq[error] {
			return failures(client.Expirations[any](ctx, c, opts...))
		},
		"warnings": func(ctx context.Context, opts ...client.FeedOption) iter.Seq[error] {
			return failures(client.Warnings[any](ctx, c, opts...))
		},
		"durable": func(ctx context.Context, opts ...client.FeedOption) iter.Seq[error] {
			return failures(c.Changes(ctx, append(opts, client.Durable(fmt.Sprint("named-", named)), client.AckWait(longAckWait))...))
		},
		"log": func(ctx context.Context, _ ...client.FeedOption) iter.Seq[error] { return failures(c.Log(ctx)) },
		"bounds": func(ctx context.Context, _ ...client.FeedOption) iter.Seq[error] {
			return func(yield func(error) bool) { _, _, err := c.LogBounds(ctx); yield(err) }
		},
	}
	from, orders, broken := client.FromStart(), client.InCollection("orders"), client.InCollection("broken")
	// A body reports whether its loop goes on.
	for name, end := range map[string]struct {
		opts []client.FeedOption
		body func(cancel func()) (more bool)
	}{
		"now":      {[]client.FeedOption{from, orders, client.UntilNow()}, nil},
		"nothing":  {[]client.FeedOption{from, client.InCollection("none"), client.UntilNow()}, nil},
		"sequence": {[]client.FeedOption{from, orders, client.UntilSeq(3), client.UntilNow()}, nil},
		"time":     {[]client.FeedOption{from, orders, client.UntilTime(time.UnixMilli(1))}, nil},
		"error":    {[]client.FeedOption{from, broken}, nil},
		"break":    {[]client.FeedOption{from, orders}, func(func()) bool { return false }},
		"panic":    {[]client.FeedOption{from, orders}, func(func()) bool { panic("of the body") }},
		"cancel":   {[]client.FeedOption{from, orders}, func(cancel func()) bool { cancel(); return true }},
		"cancel, and the body does not return": {[]client.FeedOption{from, orders}, func(cancel func()) bool {
			for cancel(); count() > 0; {
			}
			return true
		}},
	} {
		for kind, read := range loops {
			t.Run(kind+"/"+name, func(t *testing.T) {
				for range again {
					ctx, cancel := context.WithCancel(t.Context())
					func() {
						defer func() { _ = recover() }()
						for err := range read(ctx, end.opts...) {
							if err != nil && name != "error" && (ctx.Err() == nil || !errors.Is(err, context.Canceled)) {
								t.Fatal(err)
							}
							if err != nil || end.body != nil && !end.body(cancel) {
								break
							}
						}
					}()
					cancel()
					if n := count(); n > 0 {
						t.Fatalf("it leaves %d consumers", n)
					}
					remove()
				}
			})
		}
	}
	for kind, read := range loops {
		t.Run(kind+"/cancel while it begins", func(t *testing.T) {
			for nth := 1; nth <= again; nth++ { // the reader has several consumers
				ctx, cancel := context.WithCancel(t.Context())
				asked := 0
				sub := s.subscribe("$JS.API.CONSUMER.CREATE.>", func(*nats.Msg) {
					if asked++; asked == nth {
						cancel()
					}
				})
				for range read(ctx, from, orders, client.UntilNow()) {
				}
				cancel()
				check(t, sub.Unsubscribe())
				if n := count(); n > 0 {
					t.Fatalf("it leaves %d consumers", n)
				}
			}
			remove() // the server may still create the durable that a cancelled loop asked for
		})
	}
}

// failures yields only the errors of a loop.
func failures[T any](loop iter.Seq2[T, error]) iter.Seq[error] {
	return func(yield func(error) bool) {
		for _, err := range loop {
			if !yield(err) {
				return
			}
		}
	}
}
